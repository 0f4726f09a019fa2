"""Objects in an S3 bucket that a tenant named, or in a store that speaks S3's protocol, over judged addresses.

Names are claimed by conditional PUT (If-None-Match: *), which such a store must honour."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import IO
from urllib.parse import quote
from xml.etree import ElementTree

from millrace.outbound.http import Http, HttpFailed, Request, pieces_of
from millrace.outbound.objects import LISTING_SECONDS, MOST_FETCHED, MOST_PAGE_BYTES, MOST_READ, Entry
from millrace.outbound.pinning import Addresses
from millrace.outbound.s3_listing import S3Listing
from millrace.outbound.s3_signing import EMPTY, UNRESERVED, S3Keys, query_of, signed

# Larger files go in parts, because S3 takes no more than 5 GiB at once and a part that fails is sent again alone.
WHOLE_BYTES = 256 << 20
PART_BYTES = 64 << 20
MOST_REPLY_BYTES = 64 << 10


class S3Objects:
    def __init__(
        self, bucket: str, prefix: str, keys: S3Keys, addresses: Addresses, endpoint: str | None, region: str
    ) -> None:
        self.url = f"s3://{bucket}/{prefix}"
        # The bucket is in the path, not in the host name: so there is one host, and it was judged.
        self._base = f"{(endpoint or f'https://s3.{region}.amazonaws.com').rstrip('/')}/{bucket}"
        self._prefix = prefix.strip("/")
        self._keys = keys
        self._region = region
        self._http = Http(addresses)

    def get(self, name: str, most: int = MOST_READ) -> bytes:
        return self._http.send(self._request("GET", name), most=most).body

    def get_range(self, name: str, start: int, length: int) -> bytes:
        bounds = {"range": f"bytes={start}-{start + length - 1}"}
        return self._http.send(self._request("GET", name, bounds), most=length).body

    def fetch(self, name: str, path: str, most: int = MOST_FETCHED) -> None:
        self._http.fetch(self._request("GET", name), path, most)

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._http.send(self._request("PUT", name, body=data))

    def put_file(self, name: str, path: str) -> None:
        with open(path, "rb") as file:
            self.put_stream(name, file, os.path.getsize(path))

    def put_stream(self, name: str, body: IO[bytes], size: int) -> None:
        """`body` is read from its beginning, more than once."""
        if size > WHOLE_BYTES:
            self._put_parts(name, body)
            return
        body.seek(0)
        digest = hashlib.file_digest(body, "sha256")  # type: ignore[arg-type]
        headers = {"content-length": str(size)}
        self._http.send(self._request("PUT", name, headers, digest=digest.hexdigest(), stream=lambda: pieces_of(body)))

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        taken = (HTTPStatus.PRECONDITION_FAILED,)
        # Two claims at the same moment: S3 asks the loser to try again, and then answers that the name is taken.
        request = self._request("PUT", name, {"if-none-match": "*"}, data)
        return self._http.send(request, taken, retried=(HTTPStatus.CONFLICT,)).status == HTTPStatus.OK

    def size(self, name: str) -> int:
        said = self._http.send(self._request("HEAD", name)).headers.get("content-length", "")
        if not said.isdecimal():
            raise HttpFailed(f"{self.url}/{name} is answered without its size")
        return int(said)

    def list(self, folder: str) -> Sequence[Entry]:
        return self._list(folder, {"delimiter": "/"})

    def names(self, folder: str) -> Sequence[str]:
        """Also those in folders below."""
        return [entry.name for entry in self._list(folder, {})]

    def _list(self, folder: str, query: Mapping[str, str]) -> Sequence[Entry]:
        within = self._key(f"{folder}/" if folder else "")
        asked = {"list-type": "2", "prefix": within, **query}
        listing, until = S3Listing(f"{self.url}/{folder}", len(self._key(""))), time.monotonic() + LISTING_SECONDS
        while True:
            body = self._http.send(self._request("GET", None, query=asked), most=MOST_PAGE_BYTES).body
            token = listing.add(body)
            if token is None:
                return listing.sorted()
            if token == asked.get("continuation-token") or time.monotonic() > until:
                raise HttpFailed(f"the listing of {self.url}/{folder} does not end")
            asked = {**asked, "continuation-token": token}

    def delete(self, name: str) -> None:
        self._http.send(self._request("DELETE", name), also=(HTTPStatus.NOT_FOUND,))

    def _put_parts(self, name: str, body: IO[bytes]) -> None:
        begun = ElementTree.fromstring(
            self._http.send(self._request("POST", name, query={"uploads": ""}), most=MOST_REPLY_BYTES).body
        )
        upload = next(element.text or "" for element in begun.iter() if element.tag.endswith("UploadId"))
        parts: list[str] = []
        body.seek(0)
        while piece := body.read(PART_BYTES):
            place = {"partNumber": str(len(parts) + 1), "uploadId": upload}
            tag = self._http.send(self._request("PUT", name, body=piece, query=place)).headers["etag"]
            parts.append(f"<Part><PartNumber>{len(parts) + 1}</PartNumber><ETag>{tag}</ETag></Part>")
        whole = f"<CompleteMultipartUpload>{''.join(parts)}</CompleteMultipartUpload>".encode()
        answered = self._http.send(self._request("POST", name, body=whole, query={"uploadId": upload})).body
        # S3 may answer 200 and report an error in the body.
        if b"<Error>" in answered:
            raise OSError(f"{name}: {answered[:300].decode(errors='replace')}")

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _request(
        self,
        method: str,
        name: str | None,
        headers: Mapping[str, str] | None = None,
        body: bytes | memoryview | None = None,
        query: Mapping[str, str] | None = None,
        digest: str | None = None,
        stream: Callable[[], Iterator[bytes]] | None = None,
    ) -> Callable[[], Request]:
        place = "" if name is None else "/" + quote(self._key(name), safe=f"/{UNRESERVED}")
        url = f"{self._base}{place}" + (f"?{query_of(query)}" if query else "")
        digest = digest or (EMPTY if body is None else hashlib.sha256(body).hexdigest())

        def made() -> Request:
            sent = signed(method, url, headers or {}, digest, self._keys, self._region, datetime.now(UTC))
            return Request(method, url, sent, body, stream)

        return made
