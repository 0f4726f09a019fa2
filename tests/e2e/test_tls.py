"""A whole platform that speaks TLS: commands, uploads and streams reach it, and a client that does not know it refuses."""

from pathlib import Path

import httpx2
import pytest

from tests.support.platform import running_platform
from tests.support.tls import make_authority

TABLE = {
    "schema": {"type": "record", "name": "notes", "fields": [{"name": "id", "type": "long"}]},
    "primary_key": ["id"],
}


@pytest.mark.slow
def test_everything_works_by_tls(tmp_path: Path) -> None:
    certificate, key = make_authority(tmp_path / "ca").issue("millrace.example")
    with running_platform(
        tmp_path / "home", MILLRACE_API__TLS_CERT=str(certificate), MILLRACE_API__TLS_KEY=str(key)
    ) as platform:
        url = platform.client.endpoint.url
        assert url.startswith("https://")
        with pytest.raises(httpx2.HTTPError):
            httpx2.get(f"{url}/v1/health")
        table = platform.declare("acme", TABLE)
        rows = tmp_path / "notes.csv"
        rows.write_text("id\n1\n2\n")
        assert platform.cli("import", table, str(rows)).returncode == 0
        streamed = platform.cli("stream", table, stdin=b'{"id": 3}\n')
        assert streamed.returncode == 0, streamed.stderr
        assert platform.client.query("select count(*) from acme.notes")["rows"] == [[3]]
        assert platform.client.health()["status"] == "ok"
