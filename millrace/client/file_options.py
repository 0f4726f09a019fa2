"""How a file is written: as the caller says, else as its name shows, else as its table declares."""

from dataclasses import asdict, dataclass, replace
from pathlib import PurePath

from millrace.client.resource import given
from millrace.model.formats import format_of_suffix

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


@dataclass(frozen=True, slots=True)
class FileOptions:
    """None: the table's declaration decides."""

    format: str | None = None
    header: bool | None = None
    delimiter: str | None = None
    quote: str | None = None
    null_text: str | None = None
    encoding: str | None = None
    compression: str | None = None
    file_name: str | None = None

    def for_file(self, name: str) -> "FileOptions":
        """The same options, completed by the suffixes of the file's name."""
        suffixes = [suffix.lower() for suffix in PurePath(name).suffixes]
        compression = _COMPRESSIONS.get(suffixes[-1]) if suffixes else None
        inner = suffixes[:-1] if compression else suffixes
        found = format_of_suffix(inner[-1]) if inner else None
        return replace(
            self,
            compression=self.compression or compression,
            format=self.format or (found.name if found else None),
            file_name=self.file_name or PurePath(name).name,
        )

    def as_query(self) -> dict[str, str]:
        return given(**asdict(self))


AS_DECLARED = FileOptions()
