"""What the server behind a target holds, asked without any code of the connectors: names of tables, topics, files, rows."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import httpx2
import psycopg
import pymysql
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster
from confluent_kafka.admin import AdminClient

from millrace.model.sinks import SinkTarget
from tests.support.moto_server import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.row_receiver import RowReceiver
from tests.support.sink_context import no_secret

SECONDS = 20


def inventory(target: SinkTarget, receiver: RowReceiver | None) -> set[str]:
    """`receiver` is that of a webhook."""
    if receiver is not None:
        return {f"{name}: {len(table.rows)}" for name, table in receiver.tables.items()}
    ask = {"postgres": _postgres, "cassandra": _cassandra, "jdbc": _mariadb, "kafka": _topics, "bigquery": _datasets}
    return set(ask.get(target.kind, _objects)(dict(target.settings)))


def _postgres(settings: dict[str, Any]) -> Iterable[str]:
    where = {"host": settings["host"], "port": settings["port"], "dbname": settings["database"]}
    with psycopg.connect(**where, user=settings["user"], connect_timeout=SECONDS) as connection:
        for query in (
            "select table_schema || '.' || table_name from information_schema.tables",
            "select schema_name from information_schema.schemata",
        ):
            yield from (name for (name,) in connection.execute(query))


def _mariadb(settings: dict[str, Any]) -> Iterable[str]:
    where = {"host": settings["host"], "port": settings["port"], "user": settings["user"]}
    connection = pymysql.connect(**where, connect_timeout=SECONDS)
    try:
        with connection.cursor() as cursor:
            cursor.execute("select concat(table_schema, '.', table_name) from information_schema.tables")
            yield from (name for (name,) in cursor.fetchall())
            cursor.execute("select schema_name from information_schema.schemata")
            yield from (name for (name,) in cursor.fetchall())
    finally:
        connection.close()


def _cassandra(settings: dict[str, Any]) -> Iterable[str]:
    who = PlainTextAuthProvider(settings["user"], no_secret(settings["password"]))
    cluster = Cluster(settings["hosts"], port=settings["port"], connect_timeout=SECONDS, auth_provider=who)
    try:
        session = cluster.connect()
        yield from (row.keyspace_name for row in session.execute("select keyspace_name from system_schema.keyspaces"))
        tables = session.execute("select keyspace_name, table_name from system_schema.tables")
        yield from (f"{row.keyspace_name}.{row.table_name}" for row in tables)
    finally:
        cluster.shutdown()


def _topics(settings: dict[str, Any]) -> Iterable[str]:
    admin = AdminClient({"bootstrap.servers": f"{settings['hosts'][0]}:{settings['port']}"})
    # The broker makes its own topics when they are first needed.
    return [name for name in admin.list_topics(timeout=SECONDS).topics if not name.startswith("__")]


def _datasets(settings: dict[str, Any]) -> Iterable[str]:
    url = f"{settings['endpoint']}/bigquery/v2/projects/{settings['project']}/datasets"
    answer = httpx2.get(url, timeout=SECONDS).raise_for_status().json()
    return [item["id"] for item in answer.get("datasets", ())]


def _objects(settings: dict[str, Any]) -> Iterable[str]:
    place = urlsplit(str(settings.get("path") or settings["location"]))
    match place.scheme:
        case "s3":
            keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY, "region_name": REGION}
            client = boto3.client("s3", endpoint_url=settings["endpoint"], **keys)
            keys_found = [item["Key"] for item in client.list_objects_v2(Bucket=place.netloc).get("Contents", ())]
            # Arrow marks a folder by an empty object.
            return [key for key in keys_found if not key.endswith("/")]
        case "gs":
            url = f"{settings['endpoint']}/storage/v1/b/{place.netloc}/o"
            return [item["name"] for item in httpx2.get(url, timeout=SECONDS).json().get("items", ())]
        case "webhdfs":
            return _hdfs_files(f"http://{place.netloc}", place.path)
        case "hdfs":
            return _hdfs_files(settings["endpoint"], place.path)
        case _:
            return [str(path) for path in Path(place.path).rglob("*") if path.is_file()]


def _hdfs_files(endpoint: str, folder: str) -> list[str]:
    answer = httpx2.get(f"{endpoint}/webhdfs/v1{folder}?op=LISTSTATUS&user.name=millrace", timeout=SECONDS)
    if answer.status_code == httpx2.codes.NOT_FOUND:
        return []
    found = []
    for entry in answer.raise_for_status().json()["FileStatuses"]["FileStatus"]:
        path = f"{folder}/{entry['pathSuffix']}".rstrip("/")
        found += _hdfs_files(endpoint, path) if entry["type"] == "DIRECTORY" else [path]
    return found
