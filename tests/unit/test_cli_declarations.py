"""Which documents become which declarations, in which order."""

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.cli.declarations import Declaration, read_declarations
from millrace.model.errors import Invalid

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMA = {"type": "record", "name": "readings", "fields": [{"name": "id", "type": "int"}]}


def written(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def named(declarations: list[Declaration]) -> list[str]:
    return [declaration.name for declaration in declarations]


def test_the_two_documents_of_a_sample_tenant_are_taken_as_they_stand() -> None:
    found = read_declarations([EXAMPLES / "client_a"])
    assert named(found) == ["client_a", "client_a/analytics"]
    agreement, table = ("service_agreement.json", "data_file_configuration.json")
    assert found[0].document == json.loads((EXAMPLES / "client_a" / agreement).read_text())
    assert found[1].document == json.loads((EXAMPLES / "client_a" / table).read_text())


def test_every_folder_names_its_own_tenant_and_agreements_come_first() -> None:
    assert named(read_declarations([EXAMPLES])) == [
        "client_a", "client_b", "messy", "client_a/analytics", "client_b/product_reviews", "messy/orders",
    ]  # fmt: skip


def test_a_yaml_file_may_hold_several_documents_that_name_their_tenant(tmp_path: Path) -> None:
    schema = json.dumps(SCHEMA)
    text = f"tenant: acme\n---\ntenant: acme\nschema: {schema}\n---\ntenant: other\ntable: t\nschema: {schema}\n"
    found = read_declarations([written(tmp_path / "all.yaml", text)])
    assert named(found) == ["acme", "acme/readings", "other/t"]
    assert found[0].document == {"client": "acme"}
    assert "tenant" not in found[1].document


def test_the_files_of_one_folder_belong_together_when_named_one_by_one(tmp_path: Path) -> None:
    table = written(tmp_path / "a" / "table.json", {"schema": SCHEMA})
    agreement = written(tmp_path / "a" / "agreement.json", {"client": "acme"})
    assert named(read_declarations([table, agreement])) == ["acme", "acme/readings"]


def test_a_tenant_can_be_given(tmp_path: Path) -> None:
    assert named(read_declarations([written(tmp_path / "t.json", {"schema": SCHEMA})], "acme")) == ["acme/readings"]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"schema": SCHEMA}, "Nothing names the tenant"),
        ({"tables": 1}, "neither an agreement nor a table"),
        ("{", "cannot be read"),
        ("[1]", "where a declaration should be"),
        ("[" * 1500 + "]" * 1500, "nested too deeply"),
        ('{"client": "acme", "name": "\\ud800"}', "JSON cannot say"),
    ],
)
def test_what_is_no_declaration_is_refused_by_file(tmp_path: Path, document: Any, says: str) -> None:
    path = written(tmp_path / "odd.json", document)
    with pytest.raises(Invalid) as refused:
        read_declarations([path])
    assert says in str(refused.value)
    assert str(path) in str(refused.value)


def test_two_agreements_beside_a_table_leave_its_tenant_open(tmp_path: Path) -> None:
    written(tmp_path / "a.json", {"client": "a"})
    written(tmp_path / "b.json", {"client": "b"})
    written(tmp_path / "t.json", {"schema": SCHEMA})
    with pytest.raises(Invalid, match="Nothing names the tenant"):
        read_declarations([tmp_path])


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=str(tmp_path)):
        read_declarations([tmp_path])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tenant: acme\nsince: 2026-01-02\n", "2026-01-02 is a date"),
        ("tenant: acme\nmost: .nan\n", "JSON cannot say"),
        ("tenant: acme\nmore: &all [*all]\n", "JSON cannot say"),
    ],
)
def test_what_yaml_can_say_and_json_cannot_is_refused_by_file(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path / "odd.yaml", text)
    with pytest.raises(Invalid, match=says) as refused:
        read_declarations([path])
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("text", ["", "# later\n", "---\n---\n", "[]", "null"])
def test_a_file_without_a_declaration_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    empty = written(tmp_path / "a" / "empty.yaml", text)
    for path in (empty, empty.parent):
        with pytest.raises(Invalid, match=f"{path} holds no declaration") as refused:
            read_declarations([path])
        assert "millrace schema" in str(refused.value.remedy)
    written(tmp_path / "a" / "agreement.json", {"client": "acme"})
    assert named(read_declarations([empty.parent])) == ["acme"], "others in the folder have one"
