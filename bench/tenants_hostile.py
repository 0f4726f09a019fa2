"""What must not get through, tried on a running platform: fuzzed names, every role at every endpoint, hostile requests."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2

from bench.figure import Figure, at_most
from bench.platform import Bench, bench_platform
from millrace.api.endpoints import endpoints
from millrace.model.roles import LIMITABLE, OPERATOR, ROLES, may
from tests.support.hostile import NAME_RULE, attempts, body_of, got_through, in_path, names

NAMES, ASKERS = 10_000, 8
NOWHERE = {
    "table": "nowhere", "import_id": "imp_" + "0" * 26, "name": "nothing", "name:path": "nothing", "sink": "none",
    "run": "none", "op_id": "op_none",
}  # fmt: skip


def run() -> list[Figure]:
    with bench_platform() as bench:
        for tenant in ("acme", "other"):
            bench.declare_tenant(tenant)
            bench.declare_table("notes", tenant)
            # Its folders are made now, and not while others are looked for.
            bench.load(bench.data.rows(100), "notes", tenant)
        return [_names(bench), _roles(bench), _requests(bench)]


def _names(bench: Bench) -> Figure:
    """A name that is none and is taken for one, an answer that says that something broke, a folder or a tenant that was
    not there and that such a name may have made. A redirect, from a name with a slash at its end, makes nothing."""
    hostile = [name for name in names(NAMES) if not NAME_RULE.fullmatch(name)]
    before = _folders(bench.running.home) | _tenants(bench)

    def is_through(name: str) -> bool:
        status = bench.connection.send("PUT", f"/v1/tenants/{in_path(name)}", json={}).status_code
        return status < 300 or status >= 500

    with ThreadPoolExecutor(ASKERS) as pool:
        through = sum(pool.map(is_through, hostile))
    # The platform makes folders of its own while it works.
    new = (_folders(bench.running.home) | _tenants(bench)) - before
    made = [path for path in new if any(Path(path).name in name for name in hostile)]
    note = ", ".join([f"{len(hostile)} of them no names", *made[:3]])
    return at_most("fuzzed_names_through", through + len(made), f"of {NAMES}", 0, note)


def _tenants(bench: Bench) -> set[str]:
    return {str(tenant["name"]) for tenant in bench.connection.tenants.list()}


def _folders(home: Path) -> set[str]:
    """Where tenants' things are, and beside the home itself."""
    roots = (home.parent, home, home / "lake", home / "errors", home / "sources", home / "parked")
    return {str(path) for root in roots if root.is_dir() for path in root.iterdir() if path.is_dir()}


def _roles(bench: Bench) -> Figure:
    """Each cell of the table whose answer is not what the table says."""
    make = bench.connection.tokens.create
    tokens = {role: make(role, tenant="acme", role=role)["token"] for role in ROLES if role != OPERATOR}
    tokens |= {
        f"{role}:notes": make(f"{role}-", tenant="acme", role=role, tables=["notes"])["token"] for role in LIMITABLE
    }
    tokens[OPERATOR] = bench.connection.endpoint.token
    wrong, cells = 0, 0
    with httpx2.Client(base_url=bench.connection.endpoint.url, trust_env=False) as client:
        for endpoint, access in endpoints().items():
            if endpoint.startswith("WS") or access.least is None:
                continue
            for held, token in tokens.items():
                role, _, limit = held.partition(":")
                allowed = may(role, access.least) and (not limit or access.by_table)
                for tenant, expected in (("acme", allowed), ("other", allowed and role == OPERATOR)):
                    if tenant == "other" and "{tenant" not in endpoint:
                        continue
                    cells += 1
                    wrong += (_ask(client, endpoint, token, tenant) not in (401, 403, 404)) and not expected
                    wrong += expected and _ask(client, endpoint, token, tenant) in (401, 403)
    return at_most("role_endpoint_through", wrong, f"of {cells} cells", 0)


def _ask(client: httpx2.Client, endpoint: str, token: str, tenant: str) -> int:
    method, _, path = endpoint.partition(" ")
    named = {**NOWHERE, "tenant": tenant, "tenant_id": tenant}
    # What follows for ever when it is allowed has a page that says the same.
    url = re.sub(r"{([^}]*)}", lambda part: named[part[1]], path).replace("/events/stream", "/events?limit=1")
    body = {} if method in ("PUT", "POST", "PATCH") else None
    return client.request(method, url, headers={"Authorization": f"Bearer {token}"}, json=body).status_code


def _requests(bench: Bench) -> Figure:
    token = bench.connection.tokens.create("boss", tenant="acme", role="admin")["token"]
    tried = [attempt for attempt in attempts("acme") if not attempt.form]
    through = []
    with httpx2.Client(base_url=bench.connection.endpoint.url, timeout=60, trust_env=False) as client:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        for attempt in tried:
            answer = client.request(attempt.method, attempt.path, headers=headers, content=body_of(attempt))
            if got_through(attempt, answer.status_code, answer.text):
                through.append(attempt.label)
    return at_most("hostile_inputs_through", len(through), f"of {len(tried)}", 0, ", ".join(through[:3]))
