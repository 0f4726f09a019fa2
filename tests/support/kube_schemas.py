"""Kubernetes' own schemas, offline: manifests in, what is wrong with their shape out."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema_rs

OLDEST, NEWEST = "1.30", "1.37"


def schema_problems(manifest: Mapping[str, Any], version: str = NEWEST) -> list[str]:
    validator = _validator(version, str(manifest["apiVersion"]), str(manifest["kind"]))
    return [f"{'/'.join(map(str, wrong.instance_path))}: {wrong.message}" for wrong in validator.iter_errors(manifest)]


@cache
def _validator(version: str, api: str, kind: str) -> Any:
    # A group's domain is no part of the file's name: networking.k8s.io/v1 is networking-v1.
    group, _, number = api.rpartition("/")
    name = "-".join(part for part in (kind.lower(), group.partition(".")[0], number) if part)
    schema = json.loads((_folder(version) / f"{name}.json").read_text().replace("/api/_definitions.json#", "#"))
    return jsonschema_rs.validator_for({**schema, "$defs": _definitions(version)})


@cache
def _definitions(version: str) -> Any:
    text = (_folder(version) / "_definitions.json").read_text()
    return json.loads(text.replace("/api/_definitions.json#", "#"))["$defs"]


def _folder(version: str) -> Any:
    return files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}.0-local-strict"
