"""Damages in what others feel of a broken table and of a hostile app."""

from checker.dump import Document, Dump
from checker.selftest.planting import TENANT, damage


def _fault(dump: Dump, fault_id: str) -> Document:
    return next(fault for fault in dump.nemesis if fault["fault"] == fault_id)


@damage("an import waited for another, broken table", "K17")
def _(dump: Dump) -> None:
    fault = _fault(dump, "F60")
    # Mended before the other import ended, but after it was received.
    fault["mended_wall"] = fault["calm_wall"]


@damage("nothing else ended while a table was broken", "K17")
def _(dump: Dump) -> None:
    for fault in (each for each in dump.nemesis if each["fault"] == "F60"):
        fault["t_wall"] = fault["calm_wall"] = fault["mended_wall"]


@damage("a hostile app read another tenant's folder", "K18")
def _(dump: Dump) -> None:
    _fault(dump, "F61")["reached"] = [f"sources/{TENANT}/in"]


@damage("a file of another tenant was changed in an attack", "K18")
def _(dump: Dump) -> None:
    _fault(dump, "F61")["changed"] = [f"sources/{TENANT}/in/planted.csv"]


@damage("a canary of another tenant is in the attacker's log", "K18")
def _(dump: Dump) -> None:
    _fault(dump, "F61")["leaked"] = ["handled/hostile/runs/1/stdout.log"]


@damage("the hostile app was not run", "K18")
def _(dump: Dump) -> None:
    _fault(dump, "F61")["attacks"] = 0


@damage("nobody else's imports ended during an attack", "K18")
def _(dump: Dump) -> None:
    attack = _fault(dump, "F61")
    attack["ended_wall"] = attack["t_wall"]
