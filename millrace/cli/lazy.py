"""A module that is imported when it is first used, so that `millrace --help` does not wait for HTTP, Arrow or Spark."""

from importlib import import_module
from typing import Any


class LazyModule:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
