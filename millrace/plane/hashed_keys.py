"""Hashed keys of a chunk, by rule, in; a file beside those of its import's other chunks out, to be compared at the end."""

import os
from pathlib import Path

import numpy as np

from millrace.model.chunk import ChunkVerdict
from millrace.model.quality import keys_folder
from millrace.validate.quality_facts import Keys


def keep_keys(root: Path, verdict: ChunkVerdict, keys: Keys) -> None:
    folder = keys_folder(root, verdict.import_id)
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{verdict.number:08d}.{os.getpid()}"
    with unfinished.open("wb") as file:
        np.savez(file, allow_pickle=False, **keys)
    unfinished.replace(folder / f"{verdict.number:08d}.npz")
