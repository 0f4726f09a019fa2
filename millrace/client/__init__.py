"""The Python SDK: `Millrace` speaks the REST API, uploads survive broken connections, problems are exceptions.

Each name is imported on first use, so that help of the command line does not wait for all of the SDK."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace.client.endpoint import Endpoint, find_endpoint
    from millrace.client.errors import Problem, Unreachable, Unready
    from millrace.client.file_options import FileOptions
    from millrace.client.platform import Millrace
    from millrace.client.sender import Sender
    from millrace.client.sender_summary import Summary
    from millrace.client.upload import PendingUpload, Submission

__all__ = [
    "Endpoint", "FileOptions", "Millrace", "PendingUpload", "Problem", "Sender", "Submission", "Summary", "Unreachable",
    "Unready", "find_endpoint",
]  # fmt: skip

_MODULES = {
    "endpoint": ("Endpoint", "find_endpoint"),
    "errors": ("Problem", "Unreachable", "Unready"),
    "file_options": ("FileOptions",),
    "platform": ("Millrace",),
    "sender": ("Sender",),
    "sender_summary": ("Summary",),
    "upload": ("PendingUpload", "Submission"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
