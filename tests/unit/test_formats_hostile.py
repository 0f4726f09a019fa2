"""Two hundred hostile files, uploaded to a real server process: each gets a reason, and the server stays small."""

import threading
from collections.abc import Iterator
from urllib.parse import urlencode

import psutil
import pytest

from tests.support.hostile_files import COUNT, DECLARATION, hostile_files, normal_parquet
from tests.support.server_process import Answer, ServerProcess, server_process, watched

MOST_MB = 300
EVERY = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("hostile-files")) as server:
        server.declare("acme", "notes", DECLARATION)
        server.declare("calm", "notes", DECLARATION)
        yield server


def upload(server: ServerProcess, tenant: str, kind: str, data: bytes) -> Answer:
    path = f"/v1/tenants/{tenant}/tables/notes/imports?{urlencode({'format': kind})}"
    return server.ask("POST", path, data, seconds=200.0, Content_Type="application/octet-stream")


@pytest.mark.slow
def test_hostile_files_get_a_reason_and_leave_the_server_small(server: ServerProcess) -> None:
    files = hostile_files()
    assert len(files) == COUNT
    through = []
    with watched(server) as most:
        for number, file in enumerate(files):
            answer = upload(server, "acme", file.format, file.data)
            if answer.status == 202:
                through += [file.name] if file.refused else []
            else:
                assert 400 <= answer.status < 500, f"{file.name}: {answer.status} {answer.text}"
                assert answer.problem["detail"], f"{file.name}: {answer.text}"
                assert answer.problem["remedy"], f"{file.name}: {answer.text}"
            assert most[0] < MOST_MB, file.name
            if number % EVERY == 0:
                assert upload(server, "calm", "parquet", normal_parquet()).status == 202, f"after {file.name}"
    assert not through
    assert not [child for child in server.process.children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE][
        3:
    ]


def test_a_normal_import_succeeds_while_a_bomb_is_decoded(server: ServerProcess) -> None:
    bomb = next(file for file in hostile_files() if "150 MiB" in file.name)
    answers: list[Answer] = []
    attack = threading.Thread(target=lambda: answers.append(upload(server, "acme", bomb.format, bomb.data)))
    with watched(server) as most:
        attack.start()
        calm = upload(server, "calm", "parquet", normal_parquet(50_000))
        attack.join(200)
    assert calm.status == 202
    assert [answer.status for answer in answers] == [413]
    assert most[0] < MOST_MB
