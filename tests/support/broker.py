"""An embedded broker that runs for the time of a block."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace.embed.broker import Broker, prepare_broker
from tests.support.children import wait_ready


@contextmanager
def running_broker(home: Path, port: int = 0) -> Iterator[Broker]:
    broker = prepare_broker(home, port)
    broker.child.start()
    try:
        wait_ready(broker.child, 60)
        yield broker
    finally:
        broker.child.stop()
