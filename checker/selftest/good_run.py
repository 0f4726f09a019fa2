"""A small run that is right: two tenants, keyed and keyless tables, overlapping imports, schema changes, deletes, a truncate,
streamed rows, an atomic table, cancelled imports, a repeated request, a span, kills, another engine that writes too. A seed
in, its dump out."""

from checker.dump import Dump
from checker.foreign.operations import APPEND, FIRST_KEY, OPTIMIZE, TAKE, UPDATE, Operation
from checker.selftest.perfect import PARTITIONS, Perfect
from checker.selftest.upload import Upload
from checker.shapes import FIRST_SHAPE

ORDERS, LEDGER, TRAIL, VAULT = "orders", "ledger", "trail", "vault"


def good_run(seed: int = 1) -> Dump:
    world = Perfect(seed)
    for tenant in PARTITIONS:
        world.define(tenant, ORDERS, FIRST_SHAPE)
        world.define(tenant, LEDGER, FIRST_SHAPE)
        world.define(tenant, TRAIL, FIRST_SHAPE, key=False)
        _overlapping(world, tenant)
        _changing(world, tenant)
        _taking_away(world, tenant)
        _appending(world, tenant)
        _withholding(world, tenant)
        _together(world, tenant)
        _besieged(world, tenant)
        _shared(world, tenant)
    return world.finish()


def _overlapping(world: Perfect, tenant: str) -> None:
    """The older of two imports arrives last and must lose on every common key."""
    older = Upload(world, tenant, ORDERS).send()
    newer = Upload(world, tenant, ORDERS).send()
    newer.apply()
    world.kill("worker")
    older.apply()
    again = {"import": newer.id, "counts": None}
    world.call("retry", tenant, ORDERS, again, newer.files[0]["key"])


def _changing(world: Perfect, tenant: str) -> None:
    """Wide and early rows before and after the revisions that allow them, one import begun before and applied after."""
    shape = FIRST_SHAPE
    Upload(world, tenant, LEDGER, bad=0.4, early="x1").send().apply()
    straddling = Upload(world, tenant, LEDGER, bad=0.4, early="x1").send()
    world.define(tenant, LEDGER, shape.widened().with_next())
    straddling.apply()
    Upload(world, tenant, LEDGER, bad=0.4, early="x1", added=[]).send().apply()
    Upload(world, tenant, LEDGER, bad=0.4, early="x2").send().apply()


def _taking_away(world: Perfect, tenant: str) -> None:
    Upload(world, tenant, ORDERS, 10, kind="delete").send().apply()
    Upload(world, tenant, ORDERS, 20).send().apply()
    world.kill("driver")
    cancelled = Upload(world, tenant, ORDERS, 60).send()
    world.cancel(tenant, cancelled.id)
    cancelled.apply(only_chunks=1)
    world.define(tenant, "emptied", FIRST_SHAPE)
    Upload(world, tenant, "emptied").send().apply()
    world.truncate(tenant, "emptied")
    Upload(world, tenant, "emptied", 5).send().apply()


def _appending(world: Perfect, tenant: str) -> None:
    Upload(world, tenant, TRAIL, format="csv").send().apply()
    stopped = Upload(world, tenant, TRAIL, 60).send()
    world.cancel(tenant, stopped.id)
    stopped.apply(only_chunks=2)
    world.kill("broker")
    Upload(world, tenant, TRAIL).send().apply()
    Upload(world, tenant, TRAIL, 7, 12, 30).send().apply()


def _withholding(world: Perfect, tenant: str) -> None:
    """Of an atomic import that was cancelled nothing is shown."""
    world.define(tenant, VAULT, FIRST_SHAPE, atomic=True)
    Upload(world, tenant, VAULT).send().apply()
    cancelled = Upload(world, tenant, VAULT, 60).send()
    world.cancel(tenant, cancelled.id)
    cancelled.apply(only_chunks=2)


def _together(world: Perfect, tenant: str) -> None:
    """A span over two tables, one of its members streamed."""
    name = "nightly"
    world.begin_span(tenant, name)
    file = Upload(world, tenant, ORDERS, span=name).send()
    Upload(world, tenant, LEDGER, 5, 8, span=name).send().apply()
    file.apply()
    world.end_span(tenant, name)


def _besieged(world: Perfect, tenant: str) -> None:
    """A table is broken while others are loaded, and gets its rows when it is mended; a hostile app attacks."""
    waiting = Upload(world, tenant, LEDGER).send()
    world.damage(tenant, LEDGER)
    other = Upload(world, tenant, ORDERS).send()
    world.calm()
    other.apply()
    world.mend()
    waiting.apply()
    world.attack()
    Upload(world, tenant, TRAIL).send().apply()
    world.attacked()


def _shared(world: Perfect, tenant: str) -> None:
    """Another engine adds rows of its own, changes and deletes some, and compacts the files."""
    rows = {FIRST_KEY + number: f"foreign 1 {number}" for number in range(5)}
    world.foreign(tenant, VAULT, Operation(APPEND, rows))
    world.foreign(tenant, VAULT, Operation(UPDATE, {FIRST_KEY: "foreign 2 0"}))
    world.foreign(tenant, VAULT, Operation(TAKE, keys=(FIRST_KEY + 1,)))
    world.foreign(tenant, TRAIL, Operation(OPTIMIZE))
    Upload(world, tenant, VAULT).send().apply()
