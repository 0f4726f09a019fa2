"""The header Upload-Metadata of tus: keys with values in base64. It names the file; options are query parameters."""

import base64
import binascii

from millrace.api.parameters import unknown_name
from millrace.model.errors import Invalid

# What clients call the name of a file, the best first.
NAMES = ("filename", "file_name", "name")
# What common clients send by themselves. The table says what its files are, so nothing here uses it.
CONVENTIONAL = ("filetype", "type", "contentType", "relativePath", "lastModified", "size")
_LONGEST_NAME = 1000


def file_name_in(header: str | None, parameters: frozenset[str]) -> str | None:
    """The file's name, if the header has one. `parameters`: names of query parameters, for those who mix them up."""
    pairs = _pairs(header or "")
    for key in pairs:
        if key in parameters and key not in NAMES:
            raise Invalid(
                f"Upload-Metadata has {key!r}, which is a query parameter.",
                remedy=f"Send it in the address: ?{key}=…",
                code="unknown_name",
            )
        if key not in (*NAMES, *CONVENTIONAL):
            raise unknown_name("key of Upload-Metadata", key, (*NAMES, *CONVENTIONAL))
    return next((pairs[key] for key in NAMES if pairs.get(key)), None)


def _pairs(header: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in filter(None, map(str.strip, header.split(","))):
        key, _, value = part.partition(" ")
        try:
            pairs[key] = base64.b64decode(value.strip(), validate=True).decode()
        except (binascii.Error, ValueError):
            raise Invalid(
                f"The value of {key!r:.60} in Upload-Metadata is not base64 of UTF-8 text.",
                remedy="Send each pair as: KEY SPACE BASE64.",
            ) from None
        if len(pairs[key]) > _LONGEST_NAME:
            raise Invalid(f"{key!r:.60} in Upload-Metadata is too long.", remedy=f"Use {_LONGEST_NAME} characters.")
    return pairs
