"""Cuts Avro container files into pieces of whole, uncompressed blocks. Each piece is a container file of its own.

Refuses damaged files, and a writer's schema that cannot be resolved to the table's columns."""

import io
from collections.abc import Iterator

import fastavro

from millrace.formats.avro_container import SYNC_BYTES, Block, BlockReader, ContainerHeader
from millrace.formats.avro_types import refuse_unresolvable, without_logical_types
from millrace.formats.avro_weight import free_values
from millrace.formats.pieces import CutPiece, Opening, ResumePoint
from millrace.formats.swelling import refuse_bomb
from millrace.model.chunk import Oversize
from millrace.model.errors import Invalid


class AvroCutter:
    def __init__(self, opening: Opening) -> None:
        definition, options, resume = opening.definition, opening.options, opening.resume
        self._options = options
        self._limits = opening.limits
        self._reader = BlockReader(options.what, lambda header: refuse_unresolvable(header.schema, definition, options))
        self._empty = ContainerHeader(definition.table.schema, "null", bytes(SYNC_BYTES))
        self._waiting: list[Block] = []
        self._offset: int | None = 0
        self._row = 1
        self._blocks = self._plain_bytes = self._weighed = 0
        self._yielded = resume is not None
        if resume is not None:
            schema = resume["schema"]
            header = ContainerHeader(schema, resume["codec"], bytes.fromhex(resume["sync"]), free_values(schema))
            self._reader.resume(header, resume["offset"], resume["blocks"])
            self._offset, self._row = resume["offset"], resume["row"]
            self._blocks, self._plain_bytes = resume["blocks"], resume["plain_bytes"]
            self._weighed = self._plain_bytes

    def feed(self, piece: bytes) -> Iterator[CutPiece]:
        for block in self._reader.feed(piece):
            waiting = sum(map(self._weight, self._waiting))
            plain = sum(len(other.plain) for other in (*self._waiting, block))
            self._options.refuse_too_much(self._plain_bytes + plain)
            self._weighed += self._weight(block)
            refuse_bomb(self._options.what, "decodes", self._reader.read, self._weighed)
            if waiting + self._weight(block) > self._limits.piece_bytes:
                yield from self.drain()
            if self._weight(block) > self._limits.row_bytes:
                yield from self._split(block)
            else:
                self._waiting.append(block)

    def finish(self) -> Iterator[CutPiece]:
        yield from self.drain()
        self._reader.finish()
        if not self._yielded:
            yield self._cut([])

    def drain(self) -> Iterator[CutPiece]:
        blocks, self._waiting = self._waiting, []
        if not blocks:
            return
        self._leave_behind(blocks)
        if any(block.rows for block in blocks):
            yield self._cut([(block.rows, block.plain) for block in blocks if block.rows])

    def resume_point(self) -> ResumePoint | None:
        header = self._reader.header
        if not self._yielded or header is None or self._offset is None:
            return None
        place = {"offset": self._offset, "row": self._row, "blocks": self._blocks, "plain_bytes": self._plain_bytes}
        return {**place, "schema": header.schema, "codec": header.codec, "sync": header.sync.hex()}

    def rows_cut(self) -> int:
        return self._row - 1

    def repeated_headers(self) -> int:
        return 0

    def close(self) -> None:
        self._waiting.clear()

    def _weight(self, block: Block) -> int:
        assert self._reader.header is not None
        return max(len(block.plain), block.rows * self._reader.header.row_weight)

    def _leave_behind(self, blocks: list[Block]) -> None:
        self._offset = blocks[-1].end
        self._blocks += len(blocks)
        self._plain_bytes += sum(len(block.plain) for block in blocks)

    def _cut(self, parts: list[tuple[int, bytes]], oversize: Oversize | None = None) -> CutPiece:
        header = self._reader.header or self._empty
        rows = sum(rows for rows, _ in parts)
        body = header.framed(self._empty.schema.get("name", "row")) + b"".join(
            header.framed_block(rows, plain) for rows, plain in parts
        )
        if oversize:
            body = parts[0][1][: self._limits.kept_bytes]
        first_row, self._row, self._yielded = self._row, self._row + rows, True
        return CutPiece(body, "oversize" if oversize else "avro", first_row, 0, rows, None, oversize)

    def _split(self, block: Block) -> Iterator[CutPiece]:
        """Splits a block that is too long for one piece. An upload cannot be resumed between the parts of a block."""
        assert self._reader.header is not None
        bounds = [0, *self._row_ends(block)]
        most_rows = max(1, self._limits.piece_bytes // self._reader.header.row_weight)
        self._leave_behind([block])
        end, self._offset = self._offset, None
        first = 0
        while first < block.rows:
            last = first + 1
            fitting = min(block.rows, first + most_rows)
            while last < fitting and bounds[last + 1] - bounds[first] <= self._limits.piece_bytes:
                last += 1
            self._offset = end if last == block.rows else None
            part = (last - first, block.plain[bounds[first] : bounds[last]])
            too_long = last - first == 1 and len(part[1]) > self._limits.row_bytes
            yield self._cut([part], self._limits.oversize(self._row) if too_long else None)
            first = last

    def _row_ends(self, block: Block) -> list[int]:
        assert self._reader.header is not None
        stream, ends = io.BytesIO(block.plain), []
        try:
            schema = fastavro.parse_schema(without_logical_types(self._reader.header.schema))
            for _ in range(block.rows):
                fastavro.schemaless_reader(stream, schema, None, handle_unicode_errors="replace")
                ends.append(stream.tell())
        except Exception as error:  # A decoder may raise anything on foreign bytes.
            where = f"{self._options.what}: Avro block {self._blocks + 1}"
            remedy = "Send the file again, whole; if that fails too, write it again."
            raise Invalid(f"{where} does not hold rows of the file's schema.", remedy=remedy) from error
        return ends
