"""Documents in, YAML text out that reads back as the same documents."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

# PyYAML writes these line breaks as they are. A YAML reader turns some of them into a plain line feed.
_RARE_BREAKS = re.compile("[\x85\u2028\u2029]")


class _DocumentDumper(yaml.SafeDumper):
    """Writes text with rare line breaks in double quotes, where PyYAML escapes them."""


def _text(dumper: _DocumentDumper, value: str) -> yaml.ScalarNode:
    style = '"' if _RARE_BREAKS.search(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_DocumentDumper.add_representer(str, _text)


def to_yaml(*documents: Mapping[str, Any], compact: bool = False) -> str:
    """`compact`: short lists and mappings stand on one line."""
    style: dict[str, Any] = {"width": 120, "default_flow_style": None} if compact else {"default_flow_style": False}
    text: str = yaml.dump_all(documents, Dumper=_DocumentDumper, sort_keys=False, allow_unicode=True, **style)
    return text
