"""The reference pages of the sinks say what the sinks say; a page that is out of date fails here."""

from pathlib import Path

import pytest

from millrace.sink.reference import page
from millrace.sink.registry import OURS, settings_class
from millrace.sink.settings import properties

PAGES = Path(__file__).parents[2] / "docs" / "sinks"


@pytest.mark.parametrize("kind", sorted(OURS))
def test_the_page_of_each_kind_is_up_to_date(kind: str) -> None:
    assert (PAGES / f"{kind}.md").read_text() == page(kind), "run `make reference`"


def test_a_page_tells_every_setting_and_what_it_is_for() -> None:
    text = page("postgres")
    for name, said in properties(settings_class("postgres")).items():
        assert f"| `{name}` |" in text
        assert said["description"] in text
    assert "reference to a secret" in text
    assert "a power cut" in text


def test_there_is_no_page_of_a_sink_that_is_gone() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == set(OURS)
