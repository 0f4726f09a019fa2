"""`python -m tests.support.receiving_server HOME PORT LEASE_SECONDS`: the REST API without Kafka. Chunks go nowhere."""

import sys
from concurrent.futures import Future
from pathlib import Path

import uvicorn

from millrace.api.app import make_app
from millrace.api.serving import serving_options
from millrace.formats.apart import start_decoders
from millrace.lake.apart import DECODERS as LAKE_DECODERS
from millrace.settings import ApiSettings
from millrace.wire.client import Appended
from millrace.wire.topics import QUICK_PARTITIONS
from tests.support.whole_app import AppPlatform


class TakingLog:
    """Confirms every chunk and keeps none."""

    def append(self, topic: str, key: bytes, value: bytes, partition: int) -> "Future[Appended]":
        done: Future[Appended] = Future()
        done.set_result(Appended(topic, partition, 0))
        return done


class ReceivingPlatform(AppPlatform):
    appender, raw_partitions = TakingLog(), QUICK_PARTITIONS + 1
    # Little, so that bombs need not be large.
    decoder_bytes = 192 << 20


def main() -> None:
    home, port, lease_seconds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    platform = ReceivingPlatform(home, ("127.0.0.0/8",))
    platform.settings = platform.settings.model_copy(update={"api": ApiSettings(lease_seconds=lease_seconds)})
    start_decoders(LAKE_DECODERS)
    options = serving_options(platform.settings.api)
    uvicorn.run(make_app(platform.running), host="127.0.0.1", port=port, **options)


if __name__ == "__main__":
    main()
