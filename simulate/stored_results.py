"""The stored form of a result in, the result out. The platform never reads results back; the simulator compares them."""

import json
from typing import Any, get_args

from millrace.model.errors import Corrupt
from millrace.model.ops import KINDS
from millrace.model.ops.codec import decode
from millrace.model.ops.results import NOTHING, Result, Waiting


def results_of(kind: str) -> tuple[type[Result], ...]:
    """The classes of results that an op of this kind can have."""
    [results] = get_args(KINDS[kind].__orig_bases__[0])  # type: ignore[attr-defined]
    return get_args(results) or (results,)


def decode_result(kind: str, data: dict[str, Any]) -> Result:
    for cls in (*results_of(kind), Waiting):
        try:
            found: Result = decode(cls, data)
        except Corrupt:
            continue
        # The store keeps JSON, which has no tuples.
        if json.dumps(found.to_dict(), sort_keys=True) == json.dumps(data, sort_keys=True):
            return found
    if data:
        raise Corrupt(f"{data!r:.100} is not a result of {kind}.")
    return NOTHING
