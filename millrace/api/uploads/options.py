"""The format of an uploaded file as query parameters. What is missing is as the table declares it."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Query
from pydantic import BeforeValidator

from millrace.declare.table import encoding_of
from millrace.model.content import digest_of_header
from millrace.model.formats import ENCODINGS, file_type_of, file_types
from millrace.model.names import checked_span

# The largest integer of the store. A larger number is refused before it gets there.
MOST_STORED = (1 << 63) - 1


def _options(
    format: Annotated[Literal[file_types()] | None, Query(), BeforeValidator(file_type_of)] = None,  # type: ignore[valid-type]
    header: bool | None = None,
    delimiter: Annotated[str | None, Query(min_length=1, max_length=1)] = None,
    quote: Annotated[str | None, Query(min_length=1, max_length=1)] = None,
    null_text: Annotated[str | None, Query(max_length=100)] = None,
    encoding: Annotated[Literal[ENCODINGS] | None, Query(), BeforeValidator(encoding_of)] = None,  # type: ignore[valid-type]
    compression: Annotated[Literal["gzip", "zstd"] | None, Query()] = None,
    file_name: Annotated[str | None, Query(max_length=1000)] = None,
) -> dict[str, Any]:
    said = {
        "file_type": format,
        "header": header,
        "delimiter": delimiter,
        "quote": quote,
        "null_text": null_text,
        "encoding": encoding,
        "compression": compression,
        "file_name": file_name,
    }
    return {name: value for name, value in said.items() if value is not None}


OptionsDep = Annotated[dict[str, Any], Depends(_options)]


def _admission(
    kind: Annotated[Literal["load", "delete"], Query()] = "load",
    span: Annotated[str | None, Query(max_length=600)] = None,
    wait_turn: bool = True,
    repr_digest: Annotated[str | None, Header(max_length=1000)] = None,
) -> dict[str, Any]:
    """`wait_turn=false`: on an exclusive table that is busy the import is refused instead of waiting in line."""
    asked = {"import_kind": kind, "span": None if span is None else checked_span(span), "wait": wait_turn}
    return {**asked, "digest": digest_of_header(repr_digest)}


AdmissionDep = Annotated[dict[str, Any], Depends(_admission)]
