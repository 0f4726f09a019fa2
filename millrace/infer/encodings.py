"""A sample's bytes in, its encoding out, by the name that tables declare; and the sample as UTF-8."""

import codecs

import numpy as np

from millrace.infer.sampling import FileSample

UTF8, LATIN1, UTF16 = "utf-8", "latin-1", "utf-16"
_LOOKED_AT = 1 << 16
# In UTF-16 text at least this share of the even or of the odd octets is NUL, and nearly none of the others.
_MANY, _FEW = 0.2, 0.02
_LONGEST_LETTER = 4
_BROKEN_SHARE = 0.01
_BOM = codecs.BOM_UTF8


def encoding_of(sample: FileSample) -> str:
    head = sample.head
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return UTF16
    octets = np.frombuffer(head[: min(len(head) - len(head) % 2, _LOOKED_AT)], np.uint8)
    if octets.size:
        first, second = (octets[0::2] == 0).mean(), (octets[1::2] == 0).mean()
        if second >= _MANY and first <= _FEW:
            return "utf-16-le"
        if first >= _MANY and second <= _FEW:
            return "utf-16-be"
    return UTF8 if _is_mostly_utf8(sample) else LATIN1


def as_utf8(sample: FileSample, encoding: str) -> FileSample:
    """UTF-8 stays unchanged, valid or not. Characters that are split at the edges of pieces are lost."""
    if encoding == UTF8:
        return FileSample(_without_mark(sample.head), sample.pieces)
    precise = encoding
    if encoding == UTF16:
        precise = "utf-16-be" if sample.head.startswith(codecs.BOM_UTF16_BE) else "utf-16-le"
    head, *pieces = (part.decode(precise, "replace").encode() for part in (sample.head, *sample.pieces))
    return FileSample(_without_mark(head), tuple(pieces))


def _without_mark(text: bytes) -> bytes:
    while text.startswith(_BOM):
        text = text[len(_BOM) :]
    return text


def _is_mostly_utf8(sample: FileSample) -> bool:
    """Whether invalid bytes are damage: few of them among many valid characters. Otherwise it is another encoding."""
    broken = beyond = 0
    for part in (sample.head, *sample.pieces):
        if not part.isascii():
            text = part.decode(UTF8, "replace")
            beyond += len(text) - len(text.encode("ascii", "ignore"))
            broken += text.count("\ufffd") - part.count("\ufffd".encode())
    # The edges of pieces may split characters.
    edges = 0 if sample.is_whole else 2 * _LONGEST_LETTER * len(sample.pieces)
    return broken <= beyond * _BROKEN_SHARE + edges
