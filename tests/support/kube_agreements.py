"""Agreements as nobody would write them: a seed in, as many as you like out, each of another tenant."""

import random
import string
from collections.abc import Iterator
from typing import Any

from millrace.model.agreement import Agreement, parse_agreement
from millrace.model.errors import Invalid

_LETTERS = string.ascii_letters + string.digits + "_-"
_NASTY = (
    "yes", "no", "null", "~", "1e3", "0x1F", "0o17", "1_000", "08:30", "2026-11-15", "", " ", "a: b", "- a", "{x}", "[x]",
    "#", "!!str x", "&a", "*a", "|", ">", "%YAML", "---", "...", "a\nb: c", "\t", "\r\n", "\x7f", "\x85", "\u2028", "é",
    "日本", "\U0001f600", "$(CLIENT_ID)", "$$(HOME)", "$", "${HOME}", "`id`", "; rm -rf /", "'\"", "\\n", "\\",
    "{{ .Values }}", "{% raw %}", "<<", "=", "\x1b[31m", "\x00", "x" * 3000,
)  # fmt: skip
_ZONES = ("UTC", "Europe/Helsinki", "America/New_York", "Asia/Kathmandu", "Local", "../etc/passwd", "")
_CRONS = (
    "* * * * *",
    "*/5 0-6 1,15 jan-mar mon",
    "@hourly",
    "@every 90s",
    "61 * * * *",
    "0 0 31 2 *",
    "TZ=UTC * * * * *",
)
_AMOUNTS = ("0", "1", "250m", "64Mi", "1Gi", "1e3", "0.1", "9223372036854775807", "lots", "-1", "1Ei")


def agreements(seed: int = 0) -> Iterator[Agreement]:
    """Without end: those that the platform would accept, each name once."""
    chance = random.Random(seed)
    seen: set[str] = set()
    while True:
        try:
            agreement, _ = parse_agreement(_document(chance))
        except Invalid:
            continue
        if agreement.tenant not in seen:
            seen.add(agreement.tenant)
            yield agreement


def _document(chance: random.Random) -> dict[str, Any]:
    document: dict[str, Any] = {"client": _name(chance)}
    if chance.random() < 0.9:
        document["schedule"] = chance.choice((*_CRONS[:4] * 4, *_CRONS, _scheduled(chance)))
    if chance.random() < 0.9:
        document["app"] = _app(chance)
    if chance.random() < 0.7:
        kinds = ("requests", "limits") if chance.random() < 0.5 else ("limits",)
        document["resources"] = {kind: {what: _amount(chance) for what in ("cpu", "memory")} for kind in kinds}
    if chance.random() < 0.5:
        document["quotas"] = {"storage_bytes": _amount(chance)}
    return document


def _amount(chance: random.Random) -> str:
    return chance.choice((*_AMOUNTS[1:7] * 3, *_AMOUNTS))


def _name(chance: random.Random) -> str:
    if chance.random() < 0.02:
        return chance.choice(_NASTY)
    length = chance.choice((1, 2, 3, 8, 20, 39, 40, 41, 62, 63))
    return chance.choice(string.ascii_letters) + "".join(chance.choices(_LETTERS, k=length - 1))


def _scheduled(chance: random.Random) -> dict[str, str]:
    missed = chance.choice(("skip", "run_once", "run_all"))
    return {"cron": chance.choice(_CRONS[:4]), "time_zone": chance.choice((*_ZONES[:4] * 3, *_ZONES)), "missed": missed}


def _app(chance: random.Random) -> dict[str, Any]:
    app: dict[str, Any] = {"mode": chance.choice(("batch", "stream")), "replicas": chance.choice((0, 1, 2, 1000))}
    if chance.random() < 0.95:
        images = ("registry.example/apps/wrangle:1.2", f"a/b@sha256:{'0' * 64}")
        app["image"] = chance.choice(images if chance.random() < 0.9 else _NASTY)
    if "image" not in app or chance.random() < 0.3:
        app["command"] = [chance.choice(_NASTY) or "x" for _ in range(chance.randrange(1, 4))]
    if chance.random() < 0.7:
        app["env"] = {f"V{at}": chance.choice(_NASTY) for at in range(chance.randrange(4))}
    if chance.random() < 0.4:
        app["autoscale"] = {"min": chance.choice((1, 2)), "max": chance.choice((2, 50))}
    return app
