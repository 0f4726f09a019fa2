#!/usr/bin/env python3
"""Makes plain CSV of what offices export: wrangle.py [--watch]

In: files with semicolons or tabs, decimal commas, blanks around cells, empty lines. Out: the same rows with commas and
decimal points, in the sub-folder that the environment variable TABLE names, or in `out` itself.
"""

import csv
import os
import re
import signal
import sys
import time
from pathlib import Path

DECIMAL = re.compile(r"-?\d{1,3}(\.\d{3})*,\d+|-?\d+,\d+")
WATCH_SECONDS = 0.2


def main(words):
    home = Path(os.environ["SOURCE_PATH"]) / os.environ["CLIENT_ID"]
    target = home / "out" / os.environ.get("TABLE", "")
    target.mkdir(parents=True, exist_ok=True)
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    while True:
        for source in sorted((home / "in").iterdir()):
            if source.is_file() and not source.name.startswith("."):
                wrangle(source, target)
        if "--watch" not in words or stopped:
            return
        time.sleep(WATCH_SECONDS)


def wrangle(source, target):
    """Written under a name that begins with a dot, renamed when it is whole; only then the input goes."""
    partial = target / f".{source.name}.tmp"
    with (
        source.open(newline="", encoding="utf-8-sig") as given,
        partial.open("w", newline="", encoding="utf-8") as made,
    ):
        first = given.readline()
        given.seek(0)
        delimiter = max(";\t,", key=first.count)
        writer, rows = csv.writer(made, lineterminator="\n"), 0
        for row in csv.reader(given, delimiter=delimiter):
            cells = [tidy(cell, delimiter) for cell in row]
            if any(cells):
                writer.writerow(cells)
                rows += 1
    partial.rename(target / f"{source.stem}.csv")
    source.unlink()
    print(f"{source.name}: {max(rows - 1, 0)} rows", flush=True)


def tidy(cell, delimiter):
    cell = cell.strip()
    if delimiter != "," and DECIMAL.fullmatch(cell):
        return cell.replace(".", "").replace(",", ".")
    return cell


if __name__ == "__main__":
    main(sys.argv[1:])
