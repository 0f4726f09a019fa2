"""A table's objects in S3, or in a store that speaks its language: a place and keys in, `Objects` out. Names are claimed by
conditional PUT (If-None-Match: *), which such a store must honour.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from urllib.parse import quote
from xml.etree import ElementTree

from millrace.outbound.http import Answer, Http, Request, pieces_of
from millrace.outbound.objects import Entry
from millrace.outbound.pinning import Addresses
from millrace.outbound.s3_signing import EMPTY, UNRESERVED, S3Keys, query_of, signed

# Larger files go in parts, because S3 takes no more than 5 GiB at once and a part that fails is sent again alone.
WHOLE_BYTES = 256 << 20
PART_BYTES = 64 << 20


class S3Objects:
    def __init__(
        self, bucket: str, prefix: str, keys: S3Keys, addresses: Addresses, endpoint: str | None, region: str
    ) -> None:
        self.url = f"s3://{bucket}/{prefix}"
        # The bucket in the path, not in the host: then there is one host, and it was judged.
        self._base = f"{(endpoint or f'https://s3.{region}.amazonaws.com').rstrip('/')}/{bucket}"
        self._prefix = prefix.strip("/")
        self._keys = keys
        self._region = region
        self._http = Http(addresses)

    def get(self, name: str) -> bytes:
        return self._send("GET", name).body

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._send("GET", name, {"range": f"bytes={start}-{start + length - 1}"}).body

    def fetch(self, name: str, path: str) -> None:
        self._http.fetch(self._request("GET", name), path)

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._send("PUT", name, body=data)

    def put_file(self, name: str, path: str) -> None:
        if os.path.getsize(path) > WHOLE_BYTES:
            self._put_parts(name, path)
            return
        digest, size = _digest(path), os.path.getsize(path)
        self._http.send(self._request("PUT", name, {"content-length": str(size)}, digest=digest, path=path))

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        taken = (HTTPStatus.PRECONDITION_FAILED,)
        # Two at the same moment: S3 asks the loser to try again, so that it sees who won.
        request = self._request("PUT", name, {"if-none-match": "*"}, data)
        return self._http.send(request, taken, retried=(HTTPStatus.CONFLICT,)).status == HTTPStatus.OK

    def size(self, name: str) -> int:
        return int(self._send("HEAD", name).headers["content-length"])

    def list(self, folder: str) -> Sequence[Entry]:
        within = f"{self._prefix}/{folder}/" if folder else f"{self._prefix}/"
        asked = {"list-type": "2", "delimiter": "/", "prefix": within}
        found, more = [], True
        while more:
            page = ElementTree.fromstring(self._send("GET", None, query=asked).body)
            space = page.tag.rpartition("}")[0] + "}" if "}" in page.tag else ""
            found += [self._entry(one, space) for one in page.iter(f"{space}Contents")]
            token = page.findtext(f"{space}NextContinuationToken")
            more, asked = token is not None, {**asked, "continuation-token": token or ""}
        return sorted((entry for entry in found if entry.name), key=lambda entry: entry.name)

    def delete(self, name: str) -> None:
        self._http.send(self._request("DELETE", name), also=(HTTPStatus.NOT_FOUND,))

    def _put_parts(self, name: str, path: str) -> None:
        begun = ElementTree.fromstring(self._send("POST", name, query={"uploads": ""}).body)
        upload = next(one.text or "" for one in begun.iter() if one.tag.endswith("UploadId"))
        parts: list[str] = []
        with open(path, "rb") as file:
            while piece := file.read(PART_BYTES):
                place = {"partNumber": str(len(parts) + 1), "uploadId": upload}
                tag = self._send("PUT", name, body=piece, query=place).headers["etag"]
                parts.append(f"<Part><PartNumber>{len(parts) + 1}</PartNumber><ETag>{tag}</ETag></Part>")
        body = f"<CompleteMultipartUpload>{''.join(parts)}</CompleteMultipartUpload>".encode()
        said = self._send("POST", name, body=body, query={"uploadId": upload}).body
        # It may answer 200 first, and only then find out that it cannot.
        if b"<Error>" in said:
            raise OSError(f"{name}: {said[:300].decode(errors='replace')}")

    def _entry(self, one: ElementTree.Element, space: str) -> Entry:
        said = {child.tag.removeprefix(space): child.text or "" for child in one}
        changed = datetime.fromisoformat(said["LastModified"].replace("Z", "+00:00"))
        return Entry(said["Key"][len(self._prefix) + 1 :], int(said["Size"]), changed.timestamp())

    def _send(
        self,
        method: str,
        name: str | None,
        headers: Mapping[str, str] | None = None,
        body: bytes | memoryview | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        return self._http.send(self._request(method, name, headers or {}, body, query=query))

    def _request(
        self,
        method: str,
        name: str | None,
        headers: Mapping[str, str] | None = None,
        body: bytes | memoryview | None = None,
        query: Mapping[str, str] | None = None,
        digest: str | None = None,
        path: str | None = None,
    ) -> Callable[[], Request]:
        place = "" if name is None else "/" + quote(f"{self._prefix}/{name}", safe=f"/{UNRESERVED}")
        url = f"{self._base}{place}" + (f"?{query_of(query)}" if query else "")
        digest = digest or (EMPTY if body is None else hashlib.sha256(body).hexdigest())

        def made() -> Request:
            told = signed(method, url, headers or {}, digest, self._keys, self._region, datetime.now(UTC))
            return Request(method, url, told, body, None if path is None else lambda: pieces_of(path))

        return made


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    for piece in pieces_of(path):
        digest.update(piece)
    return digest.hexdigest()
