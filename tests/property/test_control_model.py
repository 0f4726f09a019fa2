"""Any log: versions rise in its order and never overlap, what is over stays over, a replay ends in the same state (I1)."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.control.step import Announce, State, Table, Tenant, step
from millrace.model import ops
from millrace.model.declaration import parse_table
from millrace.model.errors import Refused
from millrace.model.imports import Import
from millrace.model.ops import Op

TABLES = ("first", "second")
IMPORTS = tuple(f"imp_{number}" for number in range(5))
COUNTS = {"chunks": 1, "read": 3, "accepted": 2, "rejected": 1, "ignored": 0, "failed_chunks": 0}


def declaration(name: str) -> dict[str, object]:
    schema = {"type": "record", "name": name, "fields": [{"name": "id", "type": "long"}]}
    return parse_table({"schema": schema, "primary_key": ["id"]}).to_dict()


class Model:
    """A store made of dictionaries, and what must hold about every log."""

    def __init__(self) -> None:
        self.tenant: Tenant | None = None
        self.tables: dict[str, Table] = {}
        self.imports: dict[str, Import] = {}
        self.reserved: dict[str, list[range]] = {name: [] for name in TABLES}
        self.ends: list[str] = []

    def apply(self, op: Op, at_us: int) -> None:
        about_import = op.subject in IMPORTS
        key = op.body.get("idempotency_key")
        same_key = next((imp for imp in self.imports.values() if key and imp.idempotency_key == key), None)
        before = State(
            self.tenant, self.tables.get(op.subject), self.imports.get(op.subject) if about_import else None, same_key
        )
        try:
            after, effects, _ = step(before, op, at_us, 2)
        except Refused:
            return
        if before.imp is not None and before.imp.is_over:
            assert after == before
            assert effects == ()
        self._check_versions(before, after)
        self.ends += [effect.subject for effect in effects if isinstance(effect, Announce) and _is_end(effect)]
        self.tenant = after.tenant
        if after.table is not None:
            self.tables[after.table.name] = after.table
        if after.imp is not None:
            self.imports[after.imp.id] = after.imp

    def _check_versions(self, before: State, after: State) -> None:
        if after.imp is None or after.imp is before.imp or before.imp is not None:
            return
        block = range(after.imp.first_version, after.imp.first_version + after.imp.versions)
        earlier = self.reserved[after.imp.table]
        assert not earlier or block.start >= earlier[-1].stop
        earlier.append(block)


def _is_end(effect: Announce) -> bool:
    return effect.type in ("import.completed", "import.failed", "import.cancelled")


announced = st.integers(1, 2).map(lambda n: {"chunks": n, "rows": 3, "bytes": 9})
op_strategy = st.one_of(
    st.just(("define_tenant", "acme", {"agreement": {"client": "acme"}})),
    st.sampled_from(TABLES).map(lambda name: ("define_table", name, {"declaration": declaration(name)})),
    st.tuples(st.sampled_from(TABLES), st.sampled_from(IMPORTS), st.sampled_from([None, "k1", "k2"])).map(
        lambda given: ("begin_import", given[0], {"idempotency_key": given[2], "id": given[1]})
    ),
    st.tuples(st.sampled_from(IMPORTS), announced).map(lambda given: ("end_import", given[0], given[1])),
    st.sampled_from(IMPORTS).map(lambda name: ("cancel_import", name, {})),
    st.sampled_from(IMPORTS).map(lambda name: ("expire_import", name, {"idle_seconds": 5})),
    st.sampled_from(IMPORTS).map(lambda name: ("settle_import", name, {"counts": COUNTS, "durable": {"delta": 1}})),
)
log_strategy = st.lists(st.tuples(op_strategy, st.integers(0, 5_000_000)), max_size=60)


def run(log: list[tuple[tuple[str, str, dict[str, object]], int]]) -> Model:
    model = Model()
    for number, ((kind, subject, body), at_us) in enumerate(log):
        op_id = str(body.get("id", f"op_{number}"))
        if kind == ops.BEGIN_IMPORT and op_id in model.imports:
            continue
        model.apply(Op(op_id, kind, "acme", subject, body), at_us)
    return model


@settings(max_examples=300, deadline=None)
@given(log_strategy)
def test_every_log_keeps_the_rules(log: list[tuple[tuple[str, str, dict[str, object]], int]]) -> None:
    start = [
        (("define_tenant", "acme", {"agreement": {}}), 0),
        *(((("define_table", t, {"declaration": declaration(t)})), 0) for t in TABLES),
    ]
    model = run([*start, *log])
    assert len(model.ends) == len(set(model.ends)), "an end is announced once"
    assert set(model.ends) == {imp.id for imp in model.imports.values() if imp.is_over}
    again = run([*start, *log])
    assert (again.tables, again.imports, again.ends) == (model.tables, model.imports, model.ends)


def test_the_model_notices_an_overlap() -> None:
    model = run(
        [
            (("define_tenant", "acme", {"agreement": {}}), 0),
            (("define_table", "first", {"declaration": declaration("first")}), 0),
        ]
    )
    model.apply(Op("imp_0", ops.BEGIN_IMPORT, "acme", "first", {}), 10)
    model.tables["first"] = replace(model.tables["first"], last_version=0)
    try:
        model.apply(Op("imp_1", ops.BEGIN_IMPORT, "acme", "first", {}), 10)
    except AssertionError:
        return
    raise AssertionError("two imports got the same versions and nobody noticed")
