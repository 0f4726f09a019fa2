"""Manifests in, YAML out that every reader understands alike: what might be taken for a number, a boolean or a date by any
version of YAML is quoted. Values are dumped, never pasted into a template."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS_WITH_MEANING = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Kubernetes reads anchors, people do not like to."""
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS_WITH_MEANING
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else '"')


_Dumper.add_representer(str, _text)


def to_yaml(manifests: Iterable[Mapping[str, Any]]) -> str:
    """One document each."""
    text: str = yaml.dump_all(
        manifests, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=10_000, allow_unicode=False
    )
    return text
