"""Listings of buckets: pages of XML in, entries out. The bucket may hold anything: a page is never in memory as a tree, and
entries, names and pages are counted."""

from datetime import datetime
from xml.parsers import expat

from millrace.outbound.http import HttpFailed
from millrace.outbound.objects import MOST_LISTED, MOST_LISTED_BYTES, MOST_PAGES, Entry

_ENTRY, _TOKEN = "Contents", "NextContinuationToken"
_FACTS = ("Key", "Size", "LastModified")
_LONGEST_TEXT = 8192


class S3Listing:
    """`cut` is how much of each key is left out of its name."""

    def __init__(self, where: str, cut: int) -> None:
        self._where = where
        self._cut = cut
        self._entries: list[Entry] = []
        self._pages = self._size = 0

    def add(self, page: bytes) -> str | None:
        """Where the next page begins; None if this is the last."""
        self._pages += 1
        if self._pages > MOST_PAGES:
            raise HttpFailed(f"{self._where} is listed in more than {MOST_PAGES} parts")
        reader = _PageReader(self)
        try:
            return reader.read(page)
        except (expat.ExpatError, ValueError, KeyError, OverflowError) as error:
            raise HttpFailed(f"the listing of {self._where} cannot be read: {type(error).__name__} {error}") from error

    def take(self, facts: dict[str, str]) -> None:
        name = facts["Key"][self._cut :]
        self._size += len(name)
        if len(self._entries) >= MOST_LISTED or self._size > MOST_LISTED_BYTES:
            raise HttpFailed(f"{self._where} lists more than {MOST_LISTED} objects, or very long names")
        changed = datetime.fromisoformat(facts["LastModified"].replace("Z", "+00:00"))
        entry = Entry(name, int(facts["Size"]), changed.timestamp())
        if name:
            self._entries.append(entry)

    def sorted(self) -> list[Entry]:
        return sorted(self._entries, key=lambda entry: entry.name)


class _PageReader:
    def __init__(self, listing: S3Listing) -> None:
        self._listing = listing
        self._facts: dict[str, str] | None = None
        self._text: list[str] | None = None
        self._length = 0
        self._token: str | None = None

    def read(self, page: bytes) -> str | None:
        parser = expat.ParserCreate(namespace_separator="}")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._heard
        parser.EntityDeclHandler = self._refuse_entities
        parser.Parse(page, True)
        return self._token

    def _start(self, tag: str, _: dict[str, str]) -> None:
        name = tag.rpartition("}")[2]
        if name == _ENTRY:
            self._facts = {}
        if name == _TOKEN or (self._facts is not None and name in _FACTS):
            self._text, self._length = [], 0

    def _heard(self, text: str) -> None:
        if self._text is None:
            return
        self._length += len(text)
        if self._length > _LONGEST_TEXT:
            raise ValueError("a name is too long")
        self._text.append(text)

    def _end(self, tag: str) -> None:
        name = tag.rpartition("}")[2]
        text, self._text = self._text, None
        if name == _TOKEN and text is not None:
            self._token = "".join(text)
        elif name == _ENTRY and self._facts is not None:
            facts, self._facts = self._facts, None
            self._listing.take(facts)
        elif self._facts is not None and name in _FACTS and text is not None:
            self._facts[name] = "".join(text)

    def _refuse_entities(self, *_: object) -> None:
        raise ValueError("it declares entities")
