"""How many imports a tenant may begin beside others: shares by weight, and requests that wait in order."""

import asyncio

import pytest

from millrace.api.uploads.in_flight import BEGIN_SECONDS, InFlight
from millrace.model.imports import COMPLETED
from millrace.model.ops import Applied
from millrace.model.ops.results import ImportStatus
from millrace.upload.beginnings import LEAST_YOUNG, MOST_YOUNG, PRESENT_SECONDS, YOUNG_SECONDS, Beginnings
from millrace.upload.flight import weight_of


class Doorway:
    """Imports that want to begin, with a clock that stands still until it is moved."""

    def __init__(self, **priorities: int) -> None:
        self.now = 0.0
        self.beginnings = Beginnings(lambda tenant: weight_of(priorities.get(tenant, 0)), clock=lambda: self.now)
        self.begun: dict[str, list[str]] = {}

    def fill(self, tenant: str, most: int = 1000) -> int:
        """Begins imports as long as the tenant may; how many it began."""
        begun = self.begun.setdefault(tenant, [])
        before = len(begun)
        while len(begun) - before < most and self.beginnings.may_begin(tenant, f"{tenant} {len(begun)}"):
            begun.append(f"{tenant} {len(begun)}")
        return len(begun) - before


def test_a_tenant_alone_begins_as_many_imports_as_it_likes() -> None:
    assert Doorway().fill("crowd") == 1000


def test_beside_another_tenant_a_crowd_of_imports_waits_for_itself() -> None:
    doorway = Doorway()
    doorway.fill("crowd", 100)
    assert doorway.fill("calm", 1) == 1
    assert doorway.fill("crowd") == 0, "it has more than its share already"
    assert doorway.fill("calm") == MOST_YOUNG // 2 - 1
    for number in range(100):
        doorway.beginnings.over(f"crowd {number}")
    assert doorway.fill("crowd") == MOST_YOUNG // 2
    doorway.beginnings.over("crowd 100")
    doorway.beginnings.over("crowd 100")
    assert doorway.fill("crowd") == 1, "an end that is heard twice frees one place"


def test_an_import_that_waits_for_long_takes_no_place() -> None:
    doorway = Doorway()
    doorway.fill("calm", 1)
    assert doorway.fill("crowd") == MOST_YOUNG // 2
    doorway.now += YOUNG_SECONDS + 0.1
    doorway.fill("calm", 1)
    assert doorway.fill("crowd") == MOST_YOUNG // 2


def test_a_tenant_that_began_nothing_for_a_while_takes_no_share() -> None:
    doorway = Doorway()
    doorway.fill("calm", 1)
    doorway.now += PRESENT_SECONDS + 0.1
    assert doorway.fill("crowd") == 1000


def test_beginnings_are_shared_by_priority_and_each_tenant_has_some() -> None:
    doorway = Doorway(first=10)
    doorway.fill("last", 1)
    assert doorway.fill("first") == pytest.approx(MOST_YOUNG * 4 / 5, abs=1)
    many = [f"tenant {number}" for number in range(50)]
    for tenant in many:
        doorway.fill(tenant, 1)
    assert [doorway.fill(tenant) for tenant in many] == [LEAST_YOUNG - 1] * 50


def test_imports_of_a_crowd_begin_in_the_order_in_which_they_came() -> None:
    in_flight, order = InFlight(4, lambda _: 1.0), list[int]()

    async def begin(number: int) -> None:
        await in_flight.turn_to_begin("crowd", f"imp {number}")
        order.append(number)

    async def all_of_them() -> None:
        await in_flight.turn_to_begin("calm", "imp of calm")
        waiting = [asyncio.create_task(begin(number)) for number in range(40)]
        await asyncio.sleep(0)
        waiting.pop(20).cancel()
        for number in range(40):
            in_flight.on_applied([Applied("op", ImportStatus(f"imp {number}", COMPLETED))])
            await asyncio.sleep(2 * BEGIN_SECONDS)
        await asyncio.wait_for(asyncio.gather(*waiting), 10)

    asyncio.run(all_of_them())
    assert order == [number for number in range(40) if number != 20]
