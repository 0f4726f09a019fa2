"""A messy file as customers send it: refused by the first declaration, taken by the second, without sending it again."""

import json
from pathlib import Path
from typing import Any

from tests.support.platform import RunningPlatform

BOM = "\ufeff"
HEADER = "Order no.;placed;price;paid\n"
DATE_TIME = {"type": "long", "logicalType": "timestamp-micros"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


def declaration(**words: Any) -> dict[str, Any]:
    fields = [
        {"name": "id", "type": "long", "header": "Order no."},
        {"name": "placed", "type": DATE_TIME},
        {"name": "price", "type": PRICE},
        {"name": "paid", "type": ["null", "boolean"]},
    ]
    schema = {"type": "record", "name": "orders", "fields": fields}
    return {"tenant": "messy", "schema": schema, "primary_key": ["id"], "csv": {"delimiter": ";"}, **words}


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_messy_file_is_taken_once_the_table_says_how_it_is_written(platform: RunningPlatform, tmp_path: Path) -> None:
    platform.client.tenants.apply("messy", {"client": "messy"})
    first = platform.cli("apply", "-f", write(tmp_path / "orders.json", json.dumps(declaration())))
    assert first.returncode == 0, first.stderr
    text = BOM + HEADER + "1;2024-07-01 10:00:00;5;true\n" + BOM + HEADER + "2;01.07.2024 12:00;1.234,56;ja\n"
    text += "3;31.03.2024 02:30;7;nein\n4;01.07.2024 12:00;12.34;ja\n" + HEADER
    sent = platform.cli("import", "messy/orders", write(tmp_path / "orders.csv", text), "--json")
    imported = json.loads(sent.stdout)
    assert imported["rows"] == {"read": 4, "accepted": 1, "rejected": 3, "ignored": 0}
    assert imported["repeated_headers"] == 2
    assert "2 skipped" in platform.cli("status", imported["id"]).stdout

    written = {
        "timestamp_format": ["dd.MM.yyyy HH:mm", "yyyy-MM-dd HH:mm:ss"],
        "time_zone": "Europe/Berlin",
        "decimal_separator": ",",
        "thousands_separator": ".",
        "true_texts": ["true", "ja"],
        "false_texts": ["false", "nein"],
    }
    changed = write(tmp_path / "orders.json", json.dumps(declaration(written=written)))
    told = json.loads(platform.cli("diff", "-f", changed, "--json").stdout)
    assert 'written.decimal_separator: null -> ","' in str(told)
    assert "rewrites" not in str(told)
    assert platform.cli("apply", "-f", changed).returncode == 0
    again = platform.cli("replay", imported["id"], "--json")
    replayed = platform.ended(json.loads(again.stdout)["id"])
    assert (replayed["rows"]["accepted"], replayed["rows"]["rejected"]) == (1, 2)
    reasons = [
        reason["message"] for row in platform.client.rejected.page(replayed["id"])["items"] for reason in row["reasons"]
    ]
    assert reasons == [
        "'31.03.2024 02:30' does not exist in Europe/Berlin: the clocks were set forward over it",
        "'12.34' is not a decimal (1.234,56)",
    ]
    asked = platform.client.query("select id, placed::varchar, price::varchar, paid from messy.orders order by id")
    assert [[row[0], row[1][:16], row[2], row[3]] for row in asked["rows"]] == [
        [1, "2024-07-01 10:00", "5.00", True],
        [2, "2024-07-01 10:00", "1234.56", True],
    ]
    assert platform.client.tables.show("messy", "orders")["revision"] == 2
