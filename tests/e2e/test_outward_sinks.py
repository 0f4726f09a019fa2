"""A table whose rows also go to MariaDB, to a Kafka topic and to a URL, on the real platform: the same truth in each."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pymysql

from millrace.embed.broker import Broker
from millrace.wire.external_kafka import OutwardCluster
from tests.support.mariadb import DATABASE, USER, mariadb
from tests.support.platform import RunningPlatform, record
from tests.support.row_receiver import REFERENCE, RowReceiver, row_receiver

Row = tuple[int, str | None, int]
ROWS = 50_000


def test_the_last_one_wins_in_a_database_a_topic_and_at_a_url(
    platform: RunningPlatform, kafka: Broker, tmp_path: Path
) -> None:
    host, _, kafka_port = kafka.bootstrap_servers.partition(":")
    with mariadb() as port, row_receiver() as receiver:
        sinks: list[Any] = [
            "delta",
            {"kind": "jdbc", "name": "mart", "host": host, "port": port, "database": DATABASE, "user": USER},
            {"kind": "kafka", "name": "feed", "hosts": [host], "port": int(kafka_port), "partitions": 2},
            {"kind": "webhook", "name": "listener", "url": receiver.url, "secret": REFERENCE},
        ]
        fields = (("id", "long"), ("name", ["null", "string"]))
        target = platform.declare("outward", record("people", *fields, key=("id",), sinks=sinks))
        many = "".join(f"{n},name {n}\n" for n in range(ROWS))
        bodies = ["id,name\n" + many, "id,name,_deleted\n1,one,\n2,,true\n"]
        for number, body in enumerate(bodies):
            file = tmp_path / f"{number}.csv"
            file.write_text(body)
            ended = platform.send(target, file)
        assert set(ended["sinks"]) == {"delta", "mart", "feed", "listener"}
        expected = _in_delta(platform)
        assert len(expected) == ROWS - 1
        assert expected[1][1] == "one"
        assert _in_mariadb(port) == expected
        assert _in_kafka(kafka) == expected
        assert _received(receiver) == expected


def _in_delta(platform: RunningPlatform) -> list[Row]:
    table = pl.read_delta(str(platform.home.table("outward", "people")))
    return table.sort("id").select("id", "name", "_version").rows()


def _in_mariadb(port: int) -> list[Row]:
    with pymysql.connect(host="127.0.0.1", port=port, user=USER) as there, there.cursor() as cursor:
        cursor.execute(f"SELECT id, name, _version FROM `{DATABASE}$outward`.people ORDER BY id")
        return list(cursor.fetchall())


def _in_kafka(kafka: Broker) -> list[Row]:
    last = {
        record.key: record.value
        for record in OutwardCluster({"bootstrap.servers": kafka.bootstrap_servers}).read("outward.people")
    }
    rows = [json.loads(value) for value in last.values() if value is not None]
    return sorted((row["id"], row["name"], row["_version"]) for row in rows)


def _received(receiver: RowReceiver) -> list[Row]:
    return sorted((row["id"], row["name"], row["_version"]) for row in receiver.tables["outward/people"].shown())
