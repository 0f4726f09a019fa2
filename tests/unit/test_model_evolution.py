"""Schema change: what each policy allows, what needs a new generation, and how refusals name the field and the rule."""

from typing import Any

import pytest

from millrace.declare.table import parse_table
from millrace.lake.reshape import delta_ddl
from millrace.model.change_words import describe, settings_changed
from millrace.model.changes import AddColumn, Change, DropColumn, RenameColumn, WidenColumn
from millrace.model.errors import Clash, Corrupt, Invalid
from millrace.model.evolution import changes, check, path
from millrace.model.table import Definition, TableDeclaration, define


def column(name: str, avro: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": avro, **more}


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "inner", "fields": list(fields)}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "e", "symbols": list(symbols), **more}


def decimal(precision: int, scale: int, kind: str = "bytes") -> dict[str, Any]:
    size = {"size": 16, "name": "d"} if kind == "fixed" else {}
    return {"type": kind, "logicalType": "decimal", "precision": precision, "scale": scale, **size}


def table(*fields: dict[str, Any], key: tuple[str, ...] = ("id",), **settings: Any) -> TableDeclaration:
    names = [field["name"] for field in fields]
    identity = [] if "id" in names or "id" not in key else [column("id", "long")]
    schema = {"type": "record", "name": "t", "fields": [*identity, *fields]}
    return parse_table({"schema": schema, "primary_key": list(key), **settings})


def checked(before: TableDeclaration, after: TableDeclaration, *history: TableDeclaration) -> tuple[Change, ...]:
    earlier = [define("acme", one, number) for number, one in enumerate(history, 1)]
    return check(define("acme", before, len(earlier) + 1), earlier, after)


def refusal(before: TableDeclaration, after: TableDeclaration, *history: TableDeclaration) -> tuple[str, str]:
    with pytest.raises(Clash) as caught:
        checked(before, after, *history)
    assert caught.value.remedy
    return caught.value.code, caught.value.message


def of_type(before: Any, after: Any, policy: str = "backward") -> tuple[TableDeclaration, TableDeclaration]:
    return table(column("x", before)), table(column("x", after), compatibility=policy)


def test_the_same_declaration_changes_nothing() -> None:
    same = table(column("x", record(column("a", "int"))))
    assert checked(same, same) == ()


def test_an_added_column_needs_something_to_fill_in_under_backward() -> None:
    assert refusal(table(), table(column("x", "int"))) == (
        "incompatible",
        "backward: the added column 'x' has no default.",
    )
    (added,) = checked(table(), table(column("x", "int", default=0)))
    assert isinstance(added, AddColumn)
    assert (added.column.name, added.column.default) == ("x", 0)
    assert isinstance(checked(table(), table(column("x", ["null", "int"])))[0], AddColumn)
    assert isinstance(checked(table(), table(column("x", "int"), compatibility="forward"))[0], AddColumn)
    assert isinstance(checked(table(), table(column("x", "int"), compatibility="none"))[0], AddColumn)
    assert refusal(table(), table(column("x", "int", default=None))) == (
        "incompatible",
        "backward: the added column 'x' has no default.",
    )


def test_a_default_must_be_of_its_columns_type() -> None:
    with pytest.raises(Invalid, match="The default of 'x' is 'many', which is no int"):
        checked(table(), table(column("x", "int", default="many")))
    with pytest.raises(Invalid, match="The default of 'a' is 1, which is no string"):
        checked(table(), table(column("x", ["null", record(column("a", "string", default=1))])))


def test_dropping_is_free_under_backward_and_needs_a_default_under_forward() -> None:
    assert checked(table(column("x", "int")), table()) == (DropColumn("x"),)
    code, message = refusal(table(column("x", "int")), table(compatibility="forward"))
    assert (code, message) == (
        "incompatible",
        "forward: the dropped column 'x' has no default for readers that still expect it.",
    )
    assert checked(table(column("x", "int", default=1)), table(compatibility="forward")) == (DropColumn("x"),)
    assert refusal(table(column("x", "int")), table(compatibility="full"))[0] == "incompatible"


def test_full_is_both() -> None:
    both = table(column("x", ["null", "int"]), compatibility="full")
    assert isinstance(checked(table(), both)[0], AddColumn)
    assert refusal(table(), table(column("x", "int"), compatibility="full"))[1].startswith("full: the added column 'x'")
    assert "which readers of before cannot take" in refusal(*of_type("int", "long", "full"))[1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
        ("string", "bytes"), ("bytes", "string"), ("int", ["null", "int"]), ("int", ["null", "double"]),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}),
        ({"type": "array", "items": "int"}, {"type": "array", "items": ["null", "int"]}),
        ({"type": "map", "values": "string"}, {"type": "map", "values": "bytes"}),
        (record(column("a", "int")), record(column("a", "double"))),
        (record(column("a", "int"), column("b", "int")), record(column("a", "int"))),
        (record(column("a", "int")), record(column("a", "int"), column("b", "int", default=1))),
        (record(column("a", "int")), record(column("b", "int", aliases=["a"]))),
        (enum("A"), enum("A", "B")), (decimal(8, 2), decimal(20, 2)),
        ({"type": "string", "logicalType": "uuid"}, "string"),
    ],
)  # fmt: skip
def test_what_widens_under_backward(before: Any, after: Any) -> None:
    (change,) = checked(*of_type(before, after))
    assert isinstance(change, WidenColumn)
    assert change.name == change.after.name == "x"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("long", "int", "'x' would change from long to int"),
        ("double", "float", "'x' would change from double to float"),
        ("string", "int", "'x' would change from string to int"),
        ("int", "string", "'x' would change from int to string"),
        ("boolean", "int", "'x' would change from boolean to int"),
        (decimal(20, 2), decimal(8, 2), "from decimal(20,2) to decimal(8,2)"),
        (decimal(20, 2), decimal(21, 3), "from decimal(20,2) to decimal(21,3)"),
        (enum("A", "B"), enum("A"), "from enum(A, B) to enum(A)"),
        (enum("A", "B"), enum("A", default="A"), "from enum(A, B) to enum(A)"),
        ({"type": "int", "logicalType": "date"}, "int", "from date to int"),
        ({"type": "int", "logicalType": "date"}, "long", "from date to long"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            {"type": "long", "logicalType": "timestamp-micros"},
            "from timestamp-millis to timestamp-micros",
        ),
        ("string", {"type": "string", "logicalType": "uuid"}, "from string to uuid"),
        ({"type": "fixed", "name": "f", "size": 4}, {"type": "fixed", "name": "f", "size": 5}, "fixed(4) to fixed(5)"),
        (record(column("a", "long")), record(column("a", "int")), "'x.a' would change from long to int"),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, "'x[]' would change from long to int"),
        ({"type": "array", "items": "int"}, "int", "from array of int to int"),
    ],
)
@pytest.mark.parametrize("policy", ["backward", "forward", "full", "none"])
def test_what_only_a_new_generation_can_do(before: Any, after: Any, said: str, policy: str) -> None:
    code, message = refusal(*of_type(before, after, policy))
    assert code == "needs_generation"
    assert said in message


def test_of_all_pairs_of_plain_types_only_avros_promotions_pass() -> None:
    plain = ("boolean", "int", "long", "float", "double", "bytes", "string")
    codes = {}
    for before in plain:
        for after in plain:
            try:
                checked(*of_type(before, after, "none"))
                codes[before, after] = "passes"
            except Clash as clash:
                codes[before, after] = clash.code
    promotions = {("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double")}
    promotions |= {("float", "double"), ("string", "bytes"), ("bytes", "string")}
    assert {pair for pair, code in codes.items() if code == "passes"} == promotions | {(one, one) for one in plain}
    assert set(codes.values()) == {"passes", "needs_generation"}


def test_the_remedy_is_a_new_generation() -> None:
    with pytest.raises(Clash) as caught:
        checked(*of_type("long", "int"))
    assert "new generation" in caught.value.remedy


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (enum("A"), "string"),
        ({"type": "fixed", "name": "f", "size": 4}, "bytes"),
        (decimal(8, 2), decimal(8, 2, "fixed")),
    ],
)
def test_what_sinks_can_do_but_avro_cannot_is_allowed_under_none(before: Any, after: Any) -> None:
    code, message = refusal(*of_type(before, after))
    assert code == "incompatible"
    assert message.startswith("backward: column 'x' would change from")
    checked(*of_type(before, after, "none"))


def test_making_a_column_required_is_refused_under_backward() -> None:
    code, message = refusal(*of_type(["null", "int"], "int"))
    assert code == "incompatible"
    assert message.startswith("backward: column 'x' would change from nullable int to int")
    checked(*of_type(["null", "int"], "int", "forward"))
    nested = record(column("a", ["null", "int"])), record(column("a", "int"))
    assert "'x.a'" in refusal(*of_type(*nested))[1]


def test_making_a_column_nullable_is_refused_under_forward() -> None:
    assert "readers of before take no null" in refusal(*of_type("int", ["null", "int"], "forward"))[1]


def test_symbols_are_safe_for_old_readers_that_have_a_default() -> None:
    assert refusal(*of_type(enum("A"), enum("A", "B"), "forward"))[0] == "incompatible"
    checked(*of_type(enum("A", default="A"), enum("A", "B"), "forward"))


def test_a_column_is_renamed_by_its_alias() -> None:
    renamed = checked(table(column("x", "int")), table(column("y", "long", aliases=["w", "x"])))
    assert isinstance(renamed[0], RenameColumn)
    assert (renamed[0].old, renamed[0].new) == ("x", "y")
    assert isinstance(renamed[1], WidenColumn)
    assert (renamed[1].name, renamed[1].before.name, renamed[1].after.name) == ("y", "x", "y")


def test_a_name_is_stronger_than_an_alias() -> None:
    both = table(column("x", "int"), column("y", "int", aliases=["x"], default=0))
    (added,) = checked(table(column("x", "int")), both)
    assert isinstance(added, AddColumn)
    assert added.column.name == "y"


def test_an_alias_belongs_to_one_column() -> None:
    twice = table(column("y", "int", aliases=["x"]), column("z", "int", aliases=["x"], default=0))
    assert "both have the alias 'x'" in refusal(table(column("x", "int")), twice)[1]


def test_a_rename_is_a_drop_to_readers_of_before() -> None:
    code, message = refusal(
        table(column("x", "int")), table(column("y", "int", aliases=["x"]), compatibility="forward")
    )
    assert (code, "'x'" in message) == ("incompatible", True)


@pytest.mark.parametrize(
    ("before", "after"),
    [(("id",), ("id", "x")), (("id", "x"), ("id",)), (("id", "x"), ("x", "id")), (("id",), ()), ((), ("id",))],
)
def test_another_key_needs_a_generation(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    columns = column("id", "long"), column("x", "int")
    code, message = refusal(table(*columns, key=before), table(*columns, key=after, compatibility="none"))
    assert code == "needs_generation"
    assert f"from ({', '.join(before)}) to ({', '.join(after)})" in message


def test_a_key_column_may_be_renamed_and_widened_where_its_rows_are_found_again() -> None:
    before = table(column("id", "int"))
    checked(before, table(column("id", "long")))
    renamed = checked(before, table(column("ident", "long", aliases=["id"]), key=("ident",)))
    assert isinstance(renamed[0], RenameColumn)


@pytest.mark.parametrize(("before", "after"), [("int", "double"), ("string", "bytes"), ("long", "float")])
def test_a_key_whose_hash_would_change_needs_a_generation(before: str, after: str) -> None:
    code, message = refusal(table(column("id", before)), table(column("id", after)))
    assert code == "needs_generation"
    assert f"The key column 'id' would change from {before} to {after}" in message


def test_a_key_column_cannot_become_nullable() -> None:
    code, message = refusal(table(column("id", "long")), table(column("id", ["null", "long"])))
    assert (code, "a key cannot be null" in message) == ("needs_generation", True)


def test_rescuing_unknown_fields_adds_and_drops_their_column() -> None:
    (added,) = checked(table(), table(unknown_fields="rescue"))
    assert isinstance(added, AddColumn)
    assert added.column.name == "_rescued"
    assert checked(table(unknown_fields="rescue"), table()) == (DropColumn("_rescued"),)


def test_transitive_policies_look_at_every_revision() -> None:
    first, second = table(column("x", "int")), table()
    third = table(column("x", "string", default=""), compatibility="backward")
    assert [type(change) for change in checked(second, third, first)] == [AddColumn]
    strict = table(column("x", "string", default=""), compatibility="backward_transitive")
    code, message = refusal(second, strict, first)
    assert code == "incompatible"
    assert message.startswith("backward_transitive: revision 1: column 'x' would change from int to string")


def test_a_renamed_column_lists_all_its_names_for_a_transitive_policy() -> None:
    first, second = table(column("a", "int")), table(column("b", "int", aliases=["a"]))
    forgetful = table(column("c", "int", aliases=["b"]), compatibility="backward_transitive")
    assert "revision 1: the added column 'c' has no default" in refusal(second, forgetful, first)[1]
    checked(second, table(column("c", "int", aliases=["b", "a"]), compatibility="backward_transitive"), first)


def test_history_of_another_generation_does_not_count() -> None:
    before = define("acme", table(), 2, generation=2)
    past = define("acme", table(column("x", "int")), 1, generation=1)
    strict = table(column("x", "string", default=""), compatibility="backward_transitive")
    assert len(check(before, [past], strict)) == 1


def test_everything_wrong_is_named_at_once() -> None:
    _, message = refusal(table(), table(column("x", "int"), column("y", "int")))
    assert "'x'" in message
    assert "'y'" in message


def lineage(*declarations: TableDeclaration) -> tuple[list[Definition], dict[str, Definition]]:
    found: list[Definition] = []
    for revision, declaration in enumerate(declarations, 1):
        previous = found[-1].fingerprint if found else None
        found.append(define("acme", declaration, revision, previous=previous))
    return found, {one.fingerprint: one for one in found}


def test_a_path_keeps_apart_what_was_dropped_and_what_was_added_again() -> None:
    definitions, known = lineage(table(column("x", "int")), table(), table(column("x", "string", default="new")))
    first, second, third = definitions
    steps = path(known.__getitem__, first, third)
    assert [type(step) for step in steps] == [DropColumn, AddColumn]
    assert path(known.__getitem__, second, third) == changes(second, third)
    assert path(known.__getitem__, third, third) == ()


def test_there_is_no_path_back_or_into_another_generation() -> None:
    definitions, known = lineage(table(), table(column("x", ["null", "int"])))
    with pytest.raises(Corrupt):
        path(known.__getitem__, definitions[1], definitions[0])
    with pytest.raises(Corrupt, match="generation 2"):
        path(known.__getitem__, definitions[0], define("acme", table(), 3, generation=2, floor=9))


def test_changes_in_words() -> None:
    before = table(
        column("a", "int"), column("b", "int"), column("c", "int"), column("d", enum("A")), column("e", "int")
    )
    after = table(
        column("b2", "int", aliases=["b"]),
        column("c", "double"),
        column("d", enum("A", "B")),
        column("e", "long"),
        column("f", "int", default=7),
        column("g", ["null", "string"]),
    )
    found = checked(before, after)
    assert describe(found) == [
        "drop column a",
        "rename column b to b2",
        "change column c from int to double",
        "change column d from enum(A) to enum(A, B)",
        "change column e from int to long",
        "add column f int, default 7",
        "add column g nullable string",
    ]
    assert delta_ddl(found, files=3) == [
        "delta: drop column a, its values are gone (metadata only)",
        "delta: rename column b to b2 (rewrites 3 files)",
        "delta: change column c from int32 to double (rewrites 3 files)",
        "delta: change column e from int32 to int64 (rewrites 3 files)",
        "delta: add column f int32, existing rows get 7 (rewrites 3 files)",
        "delta: add column g string, existing rows have null (metadata only)",
    ]


def test_settings_in_words() -> None:
    lines = settings_changed(table(), table(on_error="stop", csv={"delimiter": ";"}))
    assert lines == ['on_error: "reject_row" -> "stop"', 'csv.delimiter: "," -> ";"', "max_rejected: null -> 0"]


def test_defaults_and_aliases_in_words() -> None:
    before = table(column("x", "int", default=1), column("y", "int"))
    after = table(column("x", "int", default=2), column("y", "int", aliases=["w"]), column("z", "int", default=0))
    assert settings_changed(before, after) == ["default of x: 1 -> 2", 'aliases of y: [] -> ["w"]']


def test_words_about_a_type_are_no_change() -> None:
    before = table(column("x", record(column("a", "int"))))
    after = table(column("x", {**record(column("a", "int", doc="words")), "name": "other"}, doc="more"))
    assert checked(before, after) == ()
