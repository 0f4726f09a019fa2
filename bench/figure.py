"""One measured figure against its target."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float | None
    unit: str
    target: str
    ok: bool
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, "unit": self.unit, "target": self.target, "ok": self.ok}


def at_least(name: str, value: float, unit: str, least: float, note: str = "") -> Figure:
    return Figure(name, round(value, 4), unit, f">= {least:g}", value >= least, note)


def at_most(name: str, value: float, unit: str, most: float, note: str = "") -> Figure:
    return Figure(name, round(value, 4), unit, f"<= {most:g}", value <= most, note)


def failed(name: str, why: str) -> Figure:
    return Figure(name, None, "", "a result", False, why)
