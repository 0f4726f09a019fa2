"""Schema change against other judges: Avro's own resolution, and rows changed one step at a time."""

import io
from itertools import pairwise
from typing import Any

import fastavro
from fastavro.schema import parse_schema
from hypothesis import assume, given
from hypothesis import strategies as st

from millrace.declare.table import parse_table
from millrace.model.changes import AddColumn, Change, DropColumn, RenameColumn
from millrace.model.defaults import stored_default
from millrace.model.errors import Clash
from millrace.model.evolution import changes, check, path
from millrace.model.table import Definition, TableDeclaration, define
from tests.support.examples import examples

NAMES = st.sampled_from("abcde")
NEW_NAMES = st.sampled_from("vwxyz")
DEFAULTS = {"int": 1, "long": 2, "float": 0.5, "double": 1.5, "string": "s", "bytes": "b", "boolean": True}
SCALARS = st.sampled_from(sorted(DEFAULTS))
ENUMS = st.sets(st.sampled_from("XYZ"), min_size=1).map(lambda names: {"type": "enum", "symbols": sorted(names)})
Field = dict[str, Any]


def described(name: str, avro: Any, optional: bool, filled: bool) -> Field:
    field = {"name": name, "type": ["null", avro] if optional else avro}
    if optional:
        return {**field, "default": None}
    return {**field, "default": DEFAULTS[avro]} if filled and isinstance(avro, str) else field


def fields(types: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Field]]:
    each = st.builds(described, NAMES, types, st.booleans(), st.booleans())
    return st.lists(each, min_size=1, max_size=3, unique_by=lambda field: str(field["name"]))


def nested(types: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": types}),
        st.fixed_dictionaries({"type": st.just("map"), "values": types}),
        st.fixed_dictionaries({"type": st.just("record"), "fields": fields(types)}),
    )


TYPES = st.recursive(SCALARS | ENUMS, nested, max_leaves=3)
FIELDS = fields(TYPES)


@st.composite
def evolved(draw: st.DrawFn, before: list[Field]) -> list[Field]:
    """Fields that have something to do with those of before: kept, retyped, renamed, dropped, and some new ones."""
    after: list[Field] = []
    for field in before:
        name, avro = field["name"], field["type"]
        inner = avro[1] if isinstance(avro, list) else avro
        match draw(st.sampled_from(["keep", "retype", "rename", "drop", "loosen", "tighten"])):
            case "keep":
                after.append(field)
            case "retype":
                after.append(described(name, draw(SCALARS if isinstance(inner, str) else TYPES), False, False))
            case "rename":
                new = draw(NEW_NAMES)
                if all(new != other["name"] for other in [*before, *after]):
                    after.append({**field, "name": new, "aliases": [name]})
            case "loosen":
                after.append(described(name, inner, True, False))
            case "tighten":
                after.append(described(name, inner, False, False))
    taken = {field["name"] for field in [*before, *after]}
    added = [field for field in draw(FIELDS) if field["name"] not in taken]
    return [*after, *added] or before


PAIRS = FIELDS.flatmap(lambda before: st.tuples(st.just(before), evolved(before)))


def declared(columns: list[dict[str, Any]], policy: str = "backward") -> TableDeclaration:
    schema = {"type": "record", "name": "t", "fields": columns}
    return parse_table({"schema": schema, "primary_key": [], "compatibility": policy})


def refused(before: TableDeclaration, after: TableDeclaration) -> str | None:
    try:
        check(define("t", before, 1), [], after)
    except Clash as clash:
        return clash.code
    return None


def named(avro: Any, place: str = "t") -> Any:
    """The same type with names where Avro wants them, the same in both schemas."""
    if isinstance(avro, list):
        return [named(branch, place) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    kind = avro["type"]
    if kind == "record":
        # A renamed field keeps its type's name.
        names = [field.get("aliases", [field["name"]])[0] for field in avro["fields"]]
        inner = [
            {**field, "type": named(field["type"], f"{place}_{name}")}
            for name, field in zip(names, avro["fields"], strict=True)
        ]
        return {**avro, "name": "r", "namespace": place, "fields": inner}
    if kind == "enum":
        return {**avro, "name": "e", "namespace": place}
    part = "items" if kind == "array" else "values"
    return {**avro, part: named(avro[part], f"{place}_{part}")}


def values(avro: Any) -> st.SearchStrategy[Any]:
    if isinstance(avro, list):
        return st.none() | values(avro[1])
    kind = avro if isinstance(avro, str) else avro["type"]
    match kind:
        case "array":
            return st.lists(values(avro["items"]), max_size=2)
        case "map":
            return st.dictionaries(st.text(max_size=2), values(avro["values"]), max_size=2)
        case "record":
            return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in avro["fields"]})
        case "enum":
            return st.sampled_from(avro["symbols"])
    return {
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "string": st.text(max_size=3),
        "bytes": st.text(max_size=3).map(str.encode),
        "boolean": st.booleans(),
    }[kind]


@examples(150)
@given(st.data(), PAIRS)
def test_what_backward_allows_avro_reads(data: st.DataObject, pair: tuple[list[Field], list[Field]]) -> None:
    before, after = pair
    assume(refused(declared(before), declared(after)) is None)
    written, read = {"type": "record", "fields": before}, {"type": "record", "fields": after}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, parse_schema(named(written)), data.draw(values(written)))
    stream.seek(0)
    row = fastavro.schemaless_reader(stream, parse_schema(named(written)), parse_schema(named(read)))
    assert isinstance(row, dict)
    assert set(row) == {field["name"] for field in after}


@examples(150)
@given(PAIRS)
def test_forward_is_backward_seen_from_the_other_side(pair: tuple[list[Field], list[Field]]) -> None:
    before, after = ([{**field, "aliases": []} for field in side] for side in pair)
    there = refused(declared(before), declared(after, "backward"))
    back = refused(declared(after), declared(before, "forward"))
    if "needs_generation" not in (there, back):
        assert there == back


@examples(150)
@given(PAIRS)
def test_full_is_backward_and_forward(pair: tuple[list[Field], list[Field]]) -> None:
    before = declared(pair[0])
    verdicts = {policy: refused(before, declared(pair[1], policy)) for policy in ("backward", "forward", "full")}
    assert (verdicts["full"] is None) == (verdicts["backward"] is None and verdicts["forward"] is None)


@examples(100)
@given(FIELDS)
def test_nothing_changes_from_a_table_to_itself(columns: list[Field]) -> None:
    table = declared(columns, "full_transitive")
    assert check(define("t", table, 1), [define("t", table, 1)], table) == ()


Row = dict[str, tuple[str, Any]]


def applied(row: Row, steps: tuple[Change, ...]) -> Row:
    """A row as name -> (where the cell came from, its type's words), changed as a sink would."""
    row = dict(row)
    for step in steps:
        if isinstance(step, DropColumn):
            del row[step.name]
        elif isinstance(step, RenameColumn):
            assert step.new not in row
            row[step.new] = row.pop(step.old)
        elif isinstance(step, AddColumn):
            assert step.column.name not in row
            row[step.column.name] = ("added", stored_default(step.column))
        else:
            assert step.name in row
    return row


@examples(150)
@given(st.data(), FIELDS)
def test_a_path_is_its_steps_and_ends_in_the_columns_of_its_end(data: st.DataObject, columns: list[Field]) -> None:
    lineage: list[Definition] = []
    for _ in range(data.draw(st.integers(2, 6))):
        table = declared(columns, "none")
        columns = data.draw(evolved(columns))
        if lineage and refused(lineage[-1].table, table):
            continue
        previous = lineage[-1].fingerprint if lineage else None
        lineage.append(define("t", table, len(lineage) + 1, previous=previous))
    known = {one.fingerprint: one for one in lineage}
    first, last = lineage[0], lineage[-1]
    row: Row = {column.name: ("kept", column.name) for column in first.columns}
    stepwise = row
    for one, other in pairwise(lineage):
        stepwise = applied(stepwise, changes(one, other))
    assert applied(row, path(known.__getitem__, first, last)) == stepwise
    assert set(stepwise) == {column.name for column in last.columns}
