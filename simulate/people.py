"""Those who declare, change and empty tables, open and end spans, cancel imports, and mend rejected rows."""

from collections import Counter
from random import Random

from pyroaring import BitMap64

from millrace.control.claims import ClosedRows
from millrace.model.imports import ADMITTED, ALTER, AMEND, DELETE, LOAD, TRUNCATE, Import
from millrace.model.ops.imports import BeginImport, CancelImport
from millrace.model.ops.rows import DiscardErrors, ReplayErrors
from millrace.model.ops.spans import AbortSpan, BeginSpan, EndSpan
from millrace.model.ops.tables import DefineTable, DropTable, RestoreTable, TruncateTable, WaiveSink
from millrace.model.ops.tenants import DefineTenant
from simulate.clients import Sender, Uploader
from simulate.content import MIRROR, TABLES, Policy, Row, declared, encoded, some_policy
from simulate.world import SPAN_LEASE_SECONDS, World

MOST_UPLOADS, MOST_SENDERS, MOST_SPANS = 8, 2, 5
_CHANGES: tuple[type[TruncateTable | DropTable | RestoreTable], ...] = (TruncateTable, DropTable, RestoreTable)


def begin(world: World, chance: Random) -> None:
    """Two tenants, and their tables."""
    for tenant in ("acme", "bolt"):
        world.ask(DefineTenant(tenant, agreement={}))
    for name in TABLES:
        _declare(world, name, some_policy(chance, 0.2))


def _declare(
    world: World, name: tuple[str, str], policy: Policy, *, wait: bool = True, new_generation: bool = False
) -> None:
    world.policies[name] = policy
    declaration = declared(name[1], policy)
    world.ask(DefineTable(*name, declaration=declaration, wait=wait, new_generation=new_generation))


def _some_table(chance: Random) -> tuple[str, str]:
    """Most meet on one."""
    return TABLES[0] if chance.random() < 0.7 else chance.choice(TABLES)


def upload(world: World, chance: Random) -> None:
    if len(world.uploaders) >= MOST_UPLOADS:
        return
    table = _some_table(chance)
    key = f"key-{len(world.uploaders)}" if chance.random() < 0.4 else None
    ours = {uploader.key for uploader in world.uploaders if uploader.table == table}
    others = [uploader.key for uploader in world.uploaders if uploader.key not in {None, *ours}]
    if others and chance.random() < 0.1:
        key = chance.choice(others)
    op = BeginImport(
        *table,
        import_kind=DELETE if chance.random() < 0.2 else LOAD,
        length=1,
        idempotency_key=key,
        span=world.some_span(table[0], chance),
        wait=chance.random() > 0.15,
    )
    world.uploaders.append(Uploader(world, op, chance))


def send(world: World, chance: Random) -> None:
    if len(world.senders) < MOST_SENDERS:
        world.senders.append(Sender(world, TABLES[0], f"sender-{len(world.senders)}"))


def define(world: World, chance: Random) -> None:
    wait, new_generation = chance.random() > 0.15, chance.random() < 0.2
    _declare(world, _some_table(chance), some_policy(chance, 0.7), wait=wait, new_generation=new_generation)


def change(world: World, chance: Random) -> None:
    name = _some_table(chance)
    known = world.store.read().tables.get(name)
    kind = chance.choice(_CHANGES)
    if known is not None and known.is_dropped and chance.random() < 0.6:
        kind = RestoreTable
    world.ask(kind(*name, wait=chance.random() > 0.15))


def cancel(world: World, chance: Random) -> None:
    imports = [imp for imp in world.store.read().imports.values() if imp.kind not in (ALTER, TRUNCATE)]
    # Mostly one that is still being received, so that more of it comes behind.
    received = [imp for imp in imports if imp.state == ADMITTED]
    if imports:
        imp = chance.choice(received if received and chance.random() < 0.7 else imports)
        world.ask(CancelImport(imp.tenant, imp.id))


def begin_span(world: World, chance: Random) -> None:
    if len(world.spans) < MOST_SPANS:
        tenant = "acme" if chance.random() < 0.8 else "bolt"
        above = [name for of, name in world.spans if of == tenant and name.count("/") < 2]
        name = f"s{len(world.spans)}"
        if above and chance.random() < 0.6:
            name = f"{chance.choice(above)}/{name}"
        world.spans.append((tenant, name))
        world.ask(BeginSpan(tenant, name, lease_seconds=SPAN_LEASE_SECONDS))


def end_span(world: World, chance: Random) -> None:
    if world.spans:
        tenant, name = chance.choice(world.spans)
        kind: type[AbortSpan | EndSpan] = AbortSpan if chance.random() < 0.1 else EndSpan
        world.ask(kind(tenant, name))


def tidy_up(world: World, chance: Random) -> None:
    """Most who began a span end it."""
    for tenant, name in world.spans:
        if chance.random() < 0.7:
            world.ask(EndSpan(tenant, name))


def mend(world: World, chance: Random) -> None:
    """Rejected rows of an import that is over: replayed, amended or discarded, now and then by two at once."""
    store = world.store.read()
    over = [store.imports[name] for name in world.errors.rows if name in store.imports and store.imports[name].is_over]
    if not over:
        return
    origin = chance.choice(over)
    name = origin.tenant, origin.table
    if not world.policies[name].extra and chance.random() < 0.5:
        # First the table learns the column that rows were rejected for.
        _declare(world, name, world.policies[name]._replace(extra=True))
    way = chance.choice((_replay, _replay, _amend, _discard))
    way(world, origin, chance)


def _some_rejects(world: World, origin: Import, chance: Random) -> dict[int, dict[int, Row]]:
    claimed = world.store.read().claims.get(origin.id)
    taken = ClosedRows.read(claimed).rows if chance.random() < 0.8 else BitMap64()
    found = {
        number: {row: value for row, value in rows.items() if row not in taken and chance.random() < 0.8}
        for number, rows in world.rejects_by_chunk(origin.id).items()
    }
    return {number: rows for number, rows in found.items() if rows}


def _replay(world: World, origin: Import, chance: Random) -> None:
    found = _some_rejects(world, origin, chance)
    root = origin
    while root.of is not None and root.kind != AMEND:
        root = world.store.read().imports[root.of]
    for number, rows in list(found.items()):
        times = Counter(row.key for row in world.watch.book[root.id].chunks[number].rows)
        # Under one version nothing says which of two rows is the later. What no rule can mend is not tried again.
        found[number] = {place: row for place, row in rows.items() if times[row.key] == 1 and not row.bad}
    found = {number: rows for number, rows in found.items() if rows}
    first = origin.first_version + min(found, default=0)
    floors = [sink[origin.tenant, origin.table].floor for sink in world.sinks.values()]
    if not found or first <= max(floors):
        return
    places = [place for rows in found.values() for place in rows]
    op = ReplayErrors(
        origin.tenant,
        origin.table,
        of=origin.id,
        rows=encoded(places),
        rows_count=len(places),
        chunks=len(found),
        first_version=first,
        span=world.some_span(origin.tenant, chance),
    )
    world.ask(op, prefix="imp")


def _amend(world: World, origin: Import, chance: Random) -> None:
    found = {place: row for rows in _some_rejects(world, origin, chance).values() for place, row in rows.items()}
    if found:
        op = BeginImport(
            origin.tenant,
            origin.table,
            import_kind=AMEND,
            of=origin.id,
            rows=encoded(found),
            length=1,
            span=world.some_span(origin.tenant, chance),
        )
        corrected = tuple(row._replace(bad=False, extra=False) for row in found.values())
        world.uploaders.append(Uploader(world, op, chance, corrected))


def _discard(world: World, origin: Import, chance: Random) -> None:
    found = [place for rows in _some_rejects(world, origin, chance).values() for place in rows]
    if found:
        op = DiscardErrors(origin.tenant, origin.table, of=origin.id, rows=encoded(found))
        world.ask(op, prefix="imp")


def fail_mirror(world: World, chance: Random) -> None:
    """The second sink goes down, comes back, or is given up while it is down."""
    if MIRROR not in world.down:
        world.down.add(MIRROR)
    elif chance.random() < 0.5:
        world.down.clear()
    else:
        world.ask(WaiveSink(*chance.choice(TABLES), sink=MIRROR))


def vanish(world: World, chance: Random) -> None:
    if world.uploaders and chance.random() < 0.6:
        uploader = chance.choice(world.uploaders)
        (uploader.come_back if uploader.is_gone else uploader.vanish)()
    elif world.senders:
        chance.choice(world.senders).break_off(chance)
