"""The server's keys for ops: those it has, a first one for a log without any, a new one when the operator asks for it.

At each start the end of the log is read. If its ops were signed by a key that is not there, the server does not start: it
would pass over ops that were acknowledged."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from millrace.exchange.op_keys import ACCEPT, ROTATE, OpKeyFiles
from millrace.model.errors import Corrupt, Unavailable
from millrace.observe import log
from millrace.wire.client import Cluster, LogReader, Record, Topics
from millrace.wire.offsets import end_offsets
from millrace.wire.signing import OpKey, OpTrust, key_number
from millrace.wire.topics import TABLE_OPS

LOOK_SECONDS = 30.0
# Of each partition. More than one: the last may be somebody else's.
LAST_RECORDS = 20

Ends = Mapping[int, tuple[int, int]]


def open_op_keys(files: OpKeyFiles, cluster: Cluster, topics: Topics) -> OpTrust:
    """Called once, before this server appends anything: what the log holds now was written before a key made here."""
    keys, name = files.read(), topics.cluster_id()
    ends = end_offsets(cluster, TABLE_OPS)
    lost = lost_key(keys, last_records(cluster, _starts(keys, name, ends), ends))
    if lost is not None and not files.is_asked(ACCEPT):
        raise _key_lost(files, lost)
    if not keys or lost is not None or files.is_asked(ROTATE):
        since = {partition: end for partition, (_, end) in ends.items()}
        keys.append(OpKey.new(len(keys) + 1, name, since, accepts_earlier=lost is not None))
        files.add(keys[-1])
        log("op_key_made", number=keys[-1].number)
    for wish in (ROTATE, ACCEPT):
        files.done(wish)
    return OpTrust(keys, name)


def lost_key(keys: Sequence[OpKey], records: Iterator[Record]) -> int | None:
    """The number of a key that signed one of the records and is newer than all that are there. Older ones cannot be missing:
    their files are counted. A log that an older version wrote has no signed records."""
    numbers = (key_number(record.value) for record in records)
    return next((number for number in numbers if number is not None and number > len(keys)), None)


def _starts(keys: Sequence[OpKey], name: str, ends: Ends) -> dict[int, int]:
    """Where to begin to read. What is older than the newest key was signed by others before."""
    since = keys[-1].since if keys and keys[-1].cluster == name else {}
    return {number: max(first, end - LAST_RECORDS, since.get(number, 0)) for number, (first, end) in ends.items()}


def last_records(cluster: Cluster, starts: Mapping[int, int], ends: Ends) -> Iterator[Record]:
    left = {number for number, (_, end) in ends.items() if starts[number] < end}
    if not left:
        return
    # A key's time may begin behind the end of a log that was made anew.
    positions = {number: min(starts[number], end) for number, (_, end) in ends.items()}
    deadline = time.monotonic() + LOOK_SECONDS
    with closing(LogReader(cluster, TABLE_OPS, positions)) as reader:
        while left:
            for record in reader.poll(LAST_RECORDS, 1.0):
                if record.offset >= ends[record.partition][1] - 1:
                    left.discard(record.partition)
                yield record
            if time.monotonic() > deadline:
                raise Unavailable("The end of the table log cannot be read.", remedy="Is the broker running?")


def _key_lost(files: OpKeyFiles, number: int) -> Corrupt:
    return Corrupt(
        f"The table log holds ops that key {number:04d} signed, and there is no key {files.folder}/{number:04d}.",
        remedy=f"Restore {files.folder} from a backup of the home. Without one, check who could write to the log, create the "
        f"empty file {files.folder}/{ACCEPT} and start again: every op that the log holds now is then accepted as it is.",
        code="op_key_lost",
    )
