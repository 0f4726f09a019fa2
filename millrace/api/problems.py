"""The one table from our errors to HTTP, as application/problem+json."""

import math
from collections.abc import Mapping
from typing import get_args

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from millrace.api.parameters import unknown_name
from millrace.auth.audit import note_refusal
from millrace.model import errors
from millrace.model.errors import Exceeded, MillraceError, Overloaded
from millrace.observe import observe

STATUS: dict[type[MillraceError], int] = {
    errors.Invalid: 422,
    errors.Missing: 404,
    errors.Clash: 409,
    errors.TooLarge: 413,
    errors.TooSlow: 408,
    errors.Unauthorised: 401,
    errors.Forbidden: 403,
    Exceeded: 429,
    Overloaded: 429,
    errors.KeyGone: 410,
    errors.Refused: 400,
    errors.Unavailable: 503,
    errors.Corrupt: 500,
    MillraceError: 500,
}
# Where the words of the library speak of Python.
_NO_OBJECT = "Input should be a JSON object; say Content-Type: application/json"
_WORDS = {"model_attributes_type": _NO_OBJECT, "dataclass_type": _NO_OBJECT}


_UNKNOWN_FIELD = ("extra_forbidden", "unexpected_keyword_argument")


def problem(status: int, code: str, detail: str, remedy: str = "", **more: object) -> JSONResponse:
    content = {
        "type": f"urn:millrace:{code}",
        "title": code.replace("_", " "),
        "status": status,
        "code": code,
        "detail": detail,
        "remedy": remedy,
        **more,
    }
    return JSONResponse(content, status, _headers(status, more), media_type="application/problem+json")


def _headers(status: int, more: Mapping[str, object]) -> dict[str, str]:
    if status == 401:
        return {"WWW-Authenticate": "Bearer"}
    seconds = more.get("retry_after_seconds", 2)
    return {"Retry-After": str(seconds)} if status in (429, 503) else {}


def problem_of(error: MillraceError) -> JSONResponse:
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    more: dict[str, object] = {"import": error.import_id} if hasattr(error, "import_id") else {}
    if isinstance(error, Exceeded | Overloaded):
        more |= {**error.facts, "retry_after_seconds": max(1, math.ceil(error.retry_seconds))}
    return problem(status, error.code, error.message, error.remedy, **more)


def _known_fields(request: Request) -> list[str]:
    """Of the body that the endpoint takes."""
    body = getattr(request.scope.get("route"), "body_field", None)
    annotation = None if body is None else body.field_info.annotation
    known: list[str] = []
    for shape in (annotation, *get_args(annotation)):
        fields: Mapping[str, object] = getattr(shape, "model_fields", {})
        known += fields or getattr(shape, "__dataclass_fields__", {})
    return known


def add_problems(app: FastAPI) -> None:
    @app.exception_handler(MillraceError)
    async def ours(request: Request, error: MillraceError) -> JSONResponse:
        note_refusal(request, error)
        response = problem_of(error)
        if response.status_code >= 500:
            observe("trouble", kind=error.code, error=error.message)
        return response

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] in _UNKNOWN_FIELD:
            return problem_of(unknown_name("field", str(first["loc"][-1]), _known_fields(request)))
        where = ".".join(str(part) for part in first["loc"])
        what = _WORDS.get(first["type"], first["msg"])
        return problem(422, "invalid", f"{where}: {what}.", "See /docs for what the request takes.")

    @app.exception_handler(HTTPException)
    async def plain(_request: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, "missing" if error.status_code == 404 else "refused", str(error.detail))

    @app.exception_handler(Exception)
    async def unforeseen(_request: Request, error: Exception) -> JSONResponse:
        """The server raises it again once this is sent, and so writes its traceback to the log."""
        observe("trouble", kind="internal", error=type(error).__name__)
        remedy = "Look into the server's log under the home's logs folder, or ask the operator to."
        return problem(500, "internal", "The platform failed to answer this request.", remedy)
