"""A small run that is right: two tenants, keyed and keyless tables, overlapping imports, schema changes, deletes, a truncate,
a cancelled import, a repeated request, kills. A seed in, its dump out."""

from checker.dump import Dump
from checker.selftest.perfect import PARTITIONS, Perfect
from checker.selftest.upload import Upload
from checker.shapes import FIRST_SHAPE

ORDERS, LEDGER, TRAIL = "orders", "ledger", "trail"


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
    return world.finish()


def _overlapping(world: Perfect, tenant: str) -> None:
    """The older of two imports arrives last and must lose on every common key."""
    older = Upload(world, tenant, ORDERS).send()
    newer = Upload(world, tenant, ORDERS).send()
    newer.apply()
    world.kill("worker")
    older.apply()
    again = {"import": newer.id, "counts": None}
    world.call("retry", tenant, ORDERS, again, newer.file["key"])


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
    Upload(world, tenant, ORDERS, count=10, deletes=True).send().apply()
    Upload(world, tenant, ORDERS, count=20).send().apply()
    world.kill("driver")
    cancelled = Upload(world, tenant, ORDERS, count=60).send()
    world.call("cancel", tenant, ORDERS, {"import": cancelled.id, "counts": None})
    cancelled.apply(only_chunks=1)
    world.define(tenant, "emptied", FIRST_SHAPE)
    Upload(world, tenant, "emptied").send().apply()
    world.truncate(tenant, "emptied")
    Upload(world, tenant, "emptied", count=5).send().apply()


def _appending(world: Perfect, tenant: str) -> None:
    Upload(world, tenant, TRAIL, format="csv").send().apply()
    stopped = Upload(world, tenant, TRAIL, count=60).send()
    world.call("cancel", tenant, TRAIL, {"import": stopped.id, "counts": None})
    stopped.apply(only_chunks=2)
    world.kill("broker")
    Upload(world, tenant, TRAIL).send().apply()
