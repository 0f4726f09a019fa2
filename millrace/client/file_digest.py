"""The SHA-256 of a file, for a key that was used before: the platform compares it with what the key's import brought."""

from hashlib import sha256
from http import HTTPStatus

from millrace.client.errors import Problem
from millrace.client.file_body import PIECE_BYTES, Content
from millrace.model.content import digest_of_header, other_content


def digest_of(path: Content, length: int | None = None) -> str:
    """Of the whole file, or of its first bytes."""
    digest = sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES if length is None else min(PIECE_BYTES, length)):
            digest.update(piece)
            length = None if length is None else length - len(piece)
    return digest.hexdigest()


def refuse_other_start(path: Content, import_id: str, offset: int, said: str | None) -> None:
    """Before an upload goes on that an earlier request began: raises if the bytes that are there are not this file's."""
    known = digest_of_header(said)
    if offset and known is not None and known != digest_of(path, offset):
        clash = other_content(import_id, f"the first {offset:,} bytes differ")
        raise Problem(HTTPStatus.CONFLICT, clash.message, code=clash.code, remedy=clash.remedy, import_id=import_id)
