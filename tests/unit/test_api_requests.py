"""What a request may say beside its body, and what is answered when nobody foresaw what happened."""

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from millrace.api.problems import add_problems
from millrace.api.uploads.options import OptionsDep


@pytest.fixture
def app() -> FastAPI:
    app = FastAPI()
    add_problems(app)

    @app.get("/options")
    def show(options: OptionsDep) -> dict[str, object]:
        return options

    @app.get("/failing")
    def fail() -> None:
        raise ZeroDivisionError("a cell's value")

    return app


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"encoding": "UTF-8"}, {"encoding": "utf-8"}),
        ({"format": "json"}, {"file_type": "jsonl"}),
        ({"format": "NDJSON"}, {"file_type": "jsonl"}),
        ({"format": "CSV"}, {"file_type": "csv"}),
        ({}, {}),
    ],
)
def test_options_are_spelled_as_in_declarations(app: FastAPI, said: dict[str, str], meant: dict[str, str]) -> None:
    assert TestClient(app).get("/options", params=said).json() == meant


@pytest.mark.parametrize("said", [{"encoding": "klingon"}, {"format": "xlsx"}])
def test_options_that_nobody_knows_are_refused(app: FastAPI, said: dict[str, str]) -> None:
    assert TestClient(app).get("/options", params=said).status_code == 422


def test_what_nobody_foresaw_is_a_problem_that_points_to_the_log(
    app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    answer = TestClient(app, raise_server_exceptions=False).get("/failing")
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "log" in answer.json()["remedy"]
    assert "cell" not in answer.text
    assert {"kind": "internal", "error": "ZeroDivisionError"} in [
        vars(record).get("fields") for record in caplog.records
    ]


def test_what_nobody_foresaw_reaches_the_server_that_logs_it(app: FastAPI) -> None:
    with pytest.raises(ZeroDivisionError):
        TestClient(app).get("/failing")
