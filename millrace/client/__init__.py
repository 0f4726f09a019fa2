"""The Python SDK: `Millrace` speaks the REST API, uploads survive broken connections, problems are exceptions."""

from millrace.client.endpoint import Endpoint, find_endpoint
from millrace.client.errors import Problem, Unreachable, Unready
from millrace.client.file_options import FileOptions
from millrace.client.platform import Millrace
from millrace.client.sender_summary import Summary
from millrace.client.upload import PendingUpload, Submission

__all__ = [
    "Endpoint",
    "FileOptions",
    "Millrace",
    "PendingUpload",
    "Problem",
    "Submission",
    "Summary",
    "Unreachable",
    "Unready",
    "find_endpoint",
]
