"""Google Cloud Storage with a tenant's own service account: its key file in, a pyarrow file system out.

The token is signed in this process: nothing in the key file makes us connect anywhere. It is renewed in time."""

from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from millrace.sink.context import SinkContext
from millrace.sink.files.settings import FilesSettings
from millrace.sink.google_account import service_account

SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
RETRY_FOR = timedelta(seconds=10)
RENEWED_BEFORE = timedelta(minutes=10)


class GoogleFiles:
    def __init__(self, settings: FilesSettings, context: SinkContext) -> None:
        self._key = context.secret(settings.credentials or "")
        self._endpoint = settings.endpoint
        self._permitted = context.permitted
        self._files: pafs.FileSystem | None = None
        self._until = datetime.min.replace(tzinfo=UTC)

    def opened(self) -> pafs.FileSystem:
        if self._files is None or datetime.now(UTC) > self._until - RENEWED_BEFORE:
            token, self._until = access_token(self._key)
            self._files = pafs.GcsFileSystem(
                access_token=token,
                credential_token_expiration=self._until,
                retry_time_limit=RETRY_FOR,
                **self._where(),
            )
        return self._files

    def _where(self) -> dict[str, str]:
        if self._endpoint is None:
            return {}
        parts = urlsplit(self._endpoint)
        self._permitted(parts.hostname or "")
        return {"scheme": parts.scheme, "endpoint_override": parts.netloc}


def access_token(key: str) -> tuple[str, datetime]:
    """A token signed by the service account's own key, and when it expires."""
    account = service_account(key, SCOPES)
    account.refresh(None)
    return str(account.token), account.expiry.replace(tzinfo=UTC)
