"""The server's keys for ops: those it has, a first one for a log without any, a new one when the operator asks for it."""

import time

from millrace.exchange.op_keys import ACCEPT, ROTATE, OpKeyFiles
from millrace.model.errors import Corrupt, Unavailable
from millrace.observe import log
from millrace.wire.client import Cluster, LogReader, Topics
from millrace.wire.offsets import end_offsets
from millrace.wire.signing import OpKey, OpTrust, is_signed
from millrace.wire.topics import TABLE_OPS

LOOK_SECONDS = 30.0


def open_op_keys(files: OpKeyFiles, cluster: Cluster, topics: Topics) -> OpTrust:
    """Called once, before this server appends anything: what the log holds now was written before a key made here."""
    keys, name = files.read(), topics.cluster_id()
    if not keys or files.is_asked(ROTATE):
        ends = end_offsets(cluster, TABLE_OPS)
        if not keys and not files.is_asked(ACCEPT):
            _refuse_signed(files, cluster, ends)
        keys.append(OpKey.new(len(keys) + 1, name, {partition: end for partition, (_, end) in ends.items()}))
        files.add(keys[-1])
        log("op_key_made", number=keys[-1].number)
    for wish in (ROTATE, ACCEPT):
        files.done(wish)
    return OpTrust(keys, name)


def _refuse_signed(files: OpKeyFiles, cluster: Cluster, ends: dict[int, tuple[int, int]]) -> None:
    """A log whose last ops are signed had a key, and it is gone. A log that an older version wrote never had one."""
    left = {partition for partition, (first, end) in ends.items() if end > first}
    reader = LogReader(cluster, TABLE_OPS, {number: max(first, end - 1) for number, (first, end) in ends.items()})
    deadline = time.monotonic() + LOOK_SECONDS
    try:
        while left:
            for record in reader.poll(100, 1.0):
                left.discard(record.partition)
                if is_signed(record.value):
                    raise Corrupt(
                        f"The table log holds signed ops, and {files.folder} holds no key for them.",
                        remedy="Restore this folder from a backup of the home. Without one, check who could write to the "
                        f"log, create the empty file {files.folder}/{ACCEPT} and start again: every op that the log holds "
                        "now is then accepted as it is.",
                        code="op_key_lost",
                    )
            if time.monotonic() > deadline:
                raise Unavailable("The end of the table log cannot be read.", remedy="Is the broker running?")
    finally:
        reader.close()
