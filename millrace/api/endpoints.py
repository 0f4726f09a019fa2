"""`python -m millrace.api.endpoints`: prints docs/endpoints.md, which is made from the routes."""

from typing import Any, cast

from millrace.api.app import make_app
from millrace.auth.access import EndpointAccess, access_table

HEAD = """# Endpoints

`make reference` makes this page from what each endpoint declares (`@allows`, `@public`). The lowest role and every higher one
may call it (viewer, reader, writer, admin, operator). A token limited to tables may call what is marked in the third column.

| endpoint | lowest role | by table | in the audit log |
| --- | --- | --- | --- |
"""


def endpoints() -> dict[str, EndpointAccess]:
    return access_table(make_app(cast(Any, None)).routes)


def page() -> str:
    rows = [
        f"| `{name}` | {access.least or 'none'} | {_mark(access.by_table)} | {_mark(access.audited)} |\n"
        for name, access in sorted(endpoints().items(), key=lambda item: item[0].split(" ")[::-1])
    ]
    return HEAD + "".join(rows)


def _mark(is_so: bool) -> str:
    return "yes" if is_so else ""


if __name__ == "__main__":
    print(page(), end="")
