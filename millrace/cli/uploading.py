"""Sends files to a table. They are admitted in the order given, so that later files win; up to four travel at a time."""

import sys
import threading
from contextlib import suppress
from dataclasses import replace

from millrace.cli.folder_spans import FolderSpans
from millrace.cli.tracks import Track
from millrace.client import Millrace, PendingUpload, Submission, Unreachable
from millrace.client.upload import SMALL_FILE_BYTES
from millrace.model.errors import MillraceError

PARALLEL_UPLOADS = 4


class FileUploads(threading.Thread):
    """Admits the tracks in order; each large body is sent by a thread of its own."""

    def __init__(
        self, connection: Millrace, submission: Submission, tracks: list[Track], folders: FolderSpans | None = None
    ) -> None:
        super().__init__(name="uploads", daemon=True)
        self._connection = connection
        self._submission = submission
        self._tracks = tracks
        self._folders = folders
        self._free = threading.Semaphore(PARALLEL_UPLOADS)
        self._stopped: MillraceError | None = None

    def stop(self, reason: MillraceError) -> None:
        """Nothing more is admitted; what is under way goes on."""
        self._stopped = reason

    def run(self) -> None:
        for number, track in enumerate(self._tracks, start=1):
            with self._free:
                if self._stopped is not None:
                    self._give_up(track, self._stopped)
                    continue
                upload = self._admit(track, self._keyed(number))
            if upload is not None:
                self._free.acquire()
                threading.Thread(target=self._deliver, args=(track, upload), name=track.name, daemon=True).start()

    def _keyed(self, number: int) -> Submission:
        if len(self._tracks) == 1:
            return self._submission
        return replace(self._submission, idempotency_key=f"{self._submission.idempotency_key}:{number}")

    def _admit(self, track: Track, submission: Submission) -> PendingUpload | None:
        """The upload that is left to send; None where one request did it all."""
        try:
            if self._folders is not None:
                self._folders.begin_for(track)
                submission = replace(submission, span=self._folders.joined_by(track))
            if track.path is None or track.size is None:
                if sys.stdin is None:
                    raise MillraceError("Standard input is closed.", remedy="Give it something to read, or a file.")
                named = replace(submission, options=replace(submission.options, file_name="stdin"))
                self._finish(track, self._connection.imports.send_stream(sys.stdin.buffer, named, track.progress)["id"])
            elif track.size <= SMALL_FILE_BYTES:
                self._finish(track, self._connection.imports.send_file(track.path, submission, track.progress)["id"])
            else:
                upload = self._connection.imports.begin_upload(track.path, submission)
                track.import_id = upload.import_id
                return upload
        except Exception as failed:
            self._give_up(track, _failure(track, failed))
        return None

    def _deliver(self, track: Track, upload: PendingUpload) -> None:
        try:
            self._finish(track, upload.send(track.progress)["id"])
        except MillraceError as failed:
            self._give_up(track, failed)
        except Exception as failed:
            # Nobody sends the rest, so neither the platform nor a follower should wait for it.
            with suppress(MillraceError):
                self._connection.imports.cancel(upload.import_id)
            self._give_up(track, _failure(track, failed))
        finally:
            self._free.release()

    def _finish(self, track: Track, import_id: str) -> None:
        track.import_id = import_id
        track.sent = track.size if track.size is not None else track.sent
        self._hand_over(track)
        track.delivered.set()

    def _give_up(self, track: Track, failed: MillraceError) -> None:
        if isinstance(failed, Unreachable):
            self.stop(failed)
        track.failure = failed
        self._hand_over(track)
        track.fail(failed)

    def _hand_over(self, track: Track) -> None:
        """Called before the track counts as delivered: by then its folder's span has ended."""
        if self._folders is not None:
            self._folders.handed_over(track)


def _failure(track: Track, failed: Exception) -> MillraceError:
    """Any error of a thread as one of ours. A track that nobody gives up would be waited for without end."""
    if isinstance(failed, MillraceError):
        return failed
    if isinstance(failed, OSError):
        return MillraceError(f"{track.name} cannot be read: {failed.strerror or failed}.", code="unreadable")
    return MillraceError(f"{track.name} could not be sent: {type(failed).__name__}: {failed}.", code="not_sent")
