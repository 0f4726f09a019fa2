"""The Python SDK: `Millrace` speaks the REST API, uploads survive broken connections, problems are exceptions.

Each name is imported on first use, so that `millrace --help` does not wait for an HTTP client."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace.client.endpoint import Endpoint, find_endpoint
    from millrace.client.errors import Problem, Unreachable, Unready
    from millrace.client.file_options import FileOptions
    from millrace.client.platform import Millrace
    from millrace.client.sender import Sender
    from millrace.client.sender_summary import Summary
    from millrace.client.upload import Submission, Upload

__all__ = [
    "Endpoint",
    "FileOptions",
    "Millrace",
    "Problem",
    "Sender",
    "Submission",
    "Summary",
    "Unreachable",
    "Unready",
    "Upload",
    "find_endpoint",
]

_MODULES = {
    "Endpoint": "endpoint",
    "FileOptions": "file_options",
    "Millrace": "platform",
    "Problem": "errors",
    "Sender": "sender",
    "Submission": "upload",
    "Summary": "sender_summary",
    "Unreachable": "errors",
    "Unready": "errors",
    "Upload": "upload",
    "find_endpoint": "endpoint",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
