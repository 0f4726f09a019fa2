"""A process of DuckDB with its own Delta reader, in its own environment: `python -m tests.interop.duckdb_engine`."""

import duckdb
import duckdb_extensions

from tests.interop.cells import row_texts
from tests.interop.serving import serve


def main() -> None:
    connection = duckdb.connect()
    # A slow query would draw its progress on standard output.
    connection.execute("set enable_progress_bar = false")
    duckdb_extensions.import_extension("delta", con=connection)
    connection.execute("load delta")

    def read(root: str, version: int, columns: list[str]) -> list[str]:
        source = f"delta_scan({_text(root)}, version => {int(version)})"
        names = [_name(name) for name in columns]
        described = connection.execute(f"describe select {', '.join(names)} from {source}").fetchall()
        # It gives moments as numbers, because its Python side wants a library for time zones.
        shown = [
            f"epoch_us({name})" if str(kind[1]).startswith("TIMESTAMP") else name
            for name, kind in zip(names, described, strict=True)
        ]
        return row_texts(connection.execute(f"select {', '.join(shown)} from {source}").fetchall())

    def count(root: str, condition: str) -> int:
        (number,) = connection.execute(f"select count(*) from delta_scan({_text(root)}) where {condition}").fetchall()[
            0
        ]
        return int(number)

    serve({"read": read, "count": count}, {"version": duckdb.__version__})


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


if __name__ == "__main__":
    main()
