"""A Kubernetes API server for tests, as far as Millrace speaks to one: it keeps objects and every request, and answers as the
real one does: server-side apply with owners of fields, pages, label selectors, dry runs, preconditions, what is owned going
with its owner. It fills in defaults, so that what comes back is never just what was sent."""

import copy
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "let-me-in"
Object = dict[str, Any]
_DEFAULTS: dict[str, Object] = {
    "CronJob": {"spec": {"suspend": False}},
    "PersistentVolumeClaim": {"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}},
    "Namespace": {"spec": {"finalizers": ["kubernetes"]}},
}


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


@dataclass
class KubeApi:
    """`refusals`: method and end of path → a status to answer with. `owners`: who else has set which field to what."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    objects: dict[str, Object] = field(default_factory=dict)
    refusals: dict[tuple[str, str], int] = field(default_factory=dict)
    owners: dict[str, dict[str, str]] = field(default_factory=dict)
    first_answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    page: int = 3
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    applied: dict[str, Object] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def lines(self, *methods: str) -> list[str]:
        return [request.line for request in self.requests if request.method in methods]

    def find(self, kind: str, name: str | None = None) -> Object:
        return next(
            one for one in self.objects.values() if one["kind"] == kind and name in (None, one["metadata"]["name"])
        )

    def kinds(self) -> list[str]:
        return sorted(one["kind"] for one in self.objects.values())

    def answer(self, request: Request) -> tuple[int, Object, dict[str, str]]:
        with self.lock:
            self.requests.append(request)
            if request.headers.get("authorization") != f"Bearer {TOKEN}":
                return _status(401, "Unauthorized", "Unauthorized")
            if self.first_answers:
                status, headers = self.first_answers.pop(0)
                return status, {"kind": "Status", "message": "busy"}, headers
            for (method, end), status in self.refusals.items():
                if method == request.method and end in request.path:
                    return _status(
                        status, "Forbidden", f'{request.path} is forbidden: User "ci" cannot {method.lower()} it'
                    )
            return getattr(self, f"_{request.method.lower()}")(request)

    def _get(self, request: Request) -> tuple[int, Object, dict[str, str]]:
        if request.path in self.objects:
            return 200, self.objects[request.path], {}
        if request.path.rsplit("/", 1)[1] not in _PLURALS:
            return _status(404, "NotFound", f"{request.path} not found")
        wanted = dict(part.split("=") for part in request.query["labelSelector"].split(","))
        found = [one for path, one in sorted(self.objects.items()) if _listed_in(path, request.path)]
        found = [one for one in found if wanted.items() <= one["metadata"].get("labels", {}).items()]
        start = int(request.query.get("continue", "0"))
        end = start + min(self.page, int(request.query["limit"]))
        # Items of a list do not repeat what they are.
        items = [{name: part for name, part in one.items() if name not in ("kind", "apiVersion")} for one in found]
        rest = {"continue": str(end)} if end < len(items) else {}
        return 200, {"kind": "List", "metadata": rest, "items": items[start:end]}, {}

    def _patch(self, request: Request) -> tuple[int, Object, dict[str, str]]:
        if request.headers["content-type"] != "application/apply-patch+yaml" or not request.query.get("fieldManager"):
            return _status(415, "UnsupportedMediaType", "this server knows server-side apply alone")
        path, wanted = request.path, request.body
        space = wanted["metadata"].get("namespace")
        if space and f"/api/v1/namespaces/{space}" not in self.objects:
            return _status(404, "NotFound", f'namespaces "{space}" not found')
        theirs = {name: manager for name, manager in self.owners.get(path, {}).items() if _holds(wanted, name)}
        before = self.objects.get(path)
        clashes = {name: who for name, who in theirs.items() if before and _at(before, name) != _at(wanted, name)}
        if clashes and request.query.get("force") != "true":
            return _conflict(clashes)
        after = self._merged(path, wanted)
        if "dryRun" in request.query:
            return (200 if before else 201), after, {}
        for name in clashes:
            del self.owners[path][name]
        if after != before:
            after["metadata"]["resourceVersion"] = str(next(self.numbers))
        self.objects[path], self.applied[path] = after, copy.deepcopy(wanted)
        return (200 if before else 201), after, {}

    def _merged(self, path: str, wanted: Object) -> Object:
        after = copy.deepcopy(self.objects.get(path, _DEFAULTS.get(wanted["kind"], {})))
        _remove(after, self.applied.get(path, {}), wanted)
        _merge(after, wanted)
        after["metadata"].setdefault("uid", f"uid-{next(self.numbers)}")
        after["metadata"]["managedFields"] = [{"manager": "millrace", "operation": "Apply"}]
        return after

    def _delete(self, request: Request) -> tuple[int, Object, dict[str, str]]:
        found = self.objects.get(request.path)
        if found is None:
            return _status(404, "NotFound", f"{request.path} not found")
        uid = found["metadata"]["uid"]
        if request.body.get("preconditions", {}).get("uid", uid) != uid:
            return _status(409, "Conflict", "Precondition failed: UID in precondition differs from UID in object meta")
        if "dryRun" not in request.query:
            self.objects = {
                path: one for path, one in self.objects.items() if not _goes_with(path, one, request.path, uid)
            }
        return 200, {"kind": "Status", "status": "Success"}, {}


_PLURALS = frozenset(
    ("namespaces", "configmaps", "serviceaccounts", "networkpolicies", "resourcequotas", "persistentvolumeclaims",
     "cronjobs", "deployments", "horizontalpodautoscalers")
)  # fmt: skip


def _listed_in(path: str, folder: str) -> bool:
    root, _, plural = folder.rpartition("/")
    return path.startswith(root) and path.split("/")[-2] == plural


def _goes_with(path: str, one: Object, deleted: str, uid: str) -> bool:
    owned = any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences", []))
    is_namespace = deleted.startswith("/api/v1/namespaces/") and deleted.count("/") == 4
    inside = is_namespace and one["metadata"].get("namespace") == deleted.rsplit("/", 1)[1]
    return path == deleted or owned or inside


def _merge(into: Object, wanted: Object) -> None:
    for name, value in wanted.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = copy.deepcopy(value)


def _remove(into: Object, once: Object, wanted: Object) -> None:
    """What the manager applied before and applies no more."""
    for name, value in once.items():
        if name not in wanted:
            into.pop(name, None)
        elif isinstance(value, dict) and isinstance(into.get(name), dict) and isinstance(wanted[name], dict):
            _remove(into[name], value, wanted[name])


def _at(one: Object, name: str) -> Any:
    value: Any = one
    for part in name.strip(".").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _holds(one: Object, name: str) -> bool:
    return _at(one, name) is not None


def _status(code: int, reason: str, message: str, **details: Any) -> tuple[int, Object, dict[str, str]]:
    said = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return code, {**said, "details": details}, {}


def _conflict(clashes: dict[str, str]) -> tuple[int, Object, dict[str, str]]:
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{manager}" using v1', "field": name}
        for name, manager in clashes.items()
    ]
    return _status(409, "Conflict", f"Apply failed with {len(causes)} conflict", causes=causes)


@contextmanager
def kube_api(tls: ssl.SSLContext | None = None) -> Iterator[KubeApi]:
    api = KubeApi()

    class Handler(_Handler):
        server_side = api

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        api.url = f"{'http' if tls is None else 'https'}://localhost:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join(20)


class _Handler(BaseHTTPRequestHandler):
    server_side: KubeApi
    protocol_version = "HTTP/1.1"
    # An answer in one piece: two would each wait for the other side's acknowledgement.
    wbufsize = -1

    def log_message(self, format: str, *args: object) -> None:
        """Tests want quiet."""

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        request = Request(self.command, parts.path, query, headers, json.loads(body) if body else None)
        status, document, more = self.server_side.answer(request)
        payload = json.dumps(document).encode()
        self.send_response(status)
        for name, value in {**more, "Content-Type": "application/json", "Content-Length": str(len(payload))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    do_GET = do_PATCH = do_DELETE = _serve
