"""Tables and columns in few words: columns of one type stand in one line."""

from typing import Any

from sqlalchemy import BigInteger, Column, Integer, MetaData, Table

metadata = MetaData()

# SQLite only autoincrements INTEGER.
SERIAL = BigInteger().with_variant(Integer, "sqlite")


def table(name: str, *columns: Column[Any], **options: Any) -> Table:
    return Table(name, metadata, *columns, **options)


def key(kind: Any, *names: str, **options: Any) -> list[Column[Any]]:
    return [Column(name, kind, primary_key=True, **options) for name in names]


def required(kind: Any, *names: str, **options: Any) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False, **options) for name in names]


def optional(kind: Any, *names: str) -> list[Column[Any]]:
    return [Column(name, kind) for name in names]
