"""What can be set of a file sink, each with what it means: the source of its reference page."""

from typing import Any

from millrace.sink.files.format import FORMATS
from millrace.sink.files.layout import LAYOUTS, WINDOWS

CHANGELOG = "changelog"
SETTINGS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path"],
    "properties": {
        "path": {
            "type": "string",
            "format": "uri",
            "examples": ["file:///srv/exports/daily"],
            "description": "s3://BUCKET/PATH, gs://BUCKET/PATH, webhdfs://HOST:PORT/PATH (swebhdfs: TLS), or file:///PATH "
            "below the folder that the operator allows. Tenant and table are folders in it; of a local path the tenant's "
            "folder comes first.",
        },
        "format": {"type": "string", "enum": list(FORMATS), "default": "parquet", "description": "Of the files."},
        "layout": {
            "type": "string",
            "enum": list(LAYOUTS),
            "default": "import",
            "description": "A folder per import, or one per window of time, by when the import was admitted.",
        },
        "window": {
            "type": "string",
            "enum": list(WINDOWS),
            "default": "day",
            "description": "How long a window is, with `layout: time`; in UTC.",
        },
        "partition_by": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Columns whose values become folders NAME=VALUE; they stay in the files, too.",
        },
        "mode": {
            "type": "string",
            "enum": ["plain", CHANGELOG],
            "default": "plain",
            "description": "Files are only added, so a table with a primary key needs `changelog`: older versions of "
            "a row stay; of each key the greatest `_version` counts, unless its `_deleted` is true.",
        },
        "region": {"type": "string", "default": "us-east-1", "description": "Of the S3 bucket."},
        "endpoint": {
            "type": "string",
            "format": "uri",
            "description": "An address that speaks S3's (or Google's) protocol, if not the cloud's own.",
        },
        "access_key": {
            "type": "string",
            "format": "secret",
            "description": "S3: a reference to the key's name: env:…, file:… or k8s:….",
        },
        "secret_key": {"type": "string", "format": "secret", "description": "S3: a reference to the key itself."},
        "credentials": {
            "type": "string",
            "format": "secret",
            "description": "Google: a reference to a service account's key file.",
        },
        "user": {"type": "string", "description": "HDFS: who writes, where the cluster believes what it is told."},
        "token": {"type": "string", "format": "secret", "description": "HDFS: a reference to a delegation token."},
    },
}
