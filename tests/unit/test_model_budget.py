"""Error budgets: read from a table's document and from an agreement, and which of them is in force."""

from typing import Any

import pytest

from millrace.declare.table import parse_table
from millrace.model.agreement import parse_agreement
from millrace.model.budget import NO_BUDGET, Budget, budget_in_force, parse_budget
from millrace.model.declared_documents import document_of
from millrace.model.errors import Invalid
from millrace.model.table import TableDeclaration
from tests.support.platform import record


def declared(**words: Any) -> TableDeclaration:
    return parse_table({**record("notes", ("id", "long")), **words})


@pytest.mark.parametrize(
    ("own", "agreed", "found"),
    [
        (Budget(), Budget(), Budget()),
        (Budget(), Budget(percent=5.0, on_budget="hold"), Budget(percent=5.0, on_budget="hold")),
        (Budget(rows=1), Budget(percent=5.0, on_budget="hold"), Budget(rows=1, on_budget="hold")),
        (Budget(rows=1, on_budget="stop"), Budget(on_budget="hold"), Budget(rows=1, on_budget="stop")),
        (Budget(on_budget="hold"), Budget(rows=3, min_rows=7), Budget(rows=3, min_rows=7, on_budget="hold")),
    ],
)
def test_a_table_has_its_own_limits_else_those_of_the_agreement(own: Budget, agreed: Budget, found: Budget) -> None:
    assert budget_in_force(own, agreed) == found


def test_what_to_do_over_the_budget_is_one_of_two_words() -> None:
    assert parse_budget({"on_budget": "hold"}).holds
    assert not parse_budget({}).holds
    with pytest.raises(Invalid, match="on_budget"):
        parse_budget({"on_budget": "wait"})


def test_an_agreement_has_a_budget_and_its_document_says_so_again() -> None:
    agreement, _ = parse_agreement({"client": "acme", "max_rejected_percent": 5, "on_budget": "hold"})
    assert agreement.budget == Budget(percent=5.0, on_budget="hold")
    assert parse_agreement(document_of(agreement))[0] == agreement
    assert parse_agreement({"client": "acme"})[0].budget == NO_BUDGET


def test_a_table_that_does_not_say_it_is_stored_as_before() -> None:
    silent, spoken = declared(max_rejected=3), declared(max_rejected=3, on_budget="hold")
    assert silent.to_dict()["budget"] == {"rows": 3, "percent": None, "min_rows": 1000}
    assert TableDeclaration.from_dict(spoken.to_dict()) == spoken
    assert TableDeclaration.from_dict(silent.to_dict()) == silent


def test_stopping_at_the_first_error_can_hold_instead() -> None:
    assert declared(on_error="stop", on_budget="hold").budget == Budget(rows=0, on_budget="hold")
