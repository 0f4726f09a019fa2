"""A throw-away AWS KMS on loopback: `with kms_server() as endpoint`. moto's, made as strict as Amazon documents its own.

Slow, as theirs may be, to show a new alias whose name ends with "late"; the answer to making one with "lost" is lost."""

import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from moto.core.exceptions import JsonRESTError
from moto.kms import urls
from moto.kms.models import KmsBackend, kms_backends
from moto.kms.responses import KmsResponse
from moto.kms.utils import decrypt
from moto.server import main

from millrace.embed.ports import LOOPBACK, free_ports
from millrace.embed.process import Child, Launch
from tests.support.children import wait_ready

START_SECONDS = 60
MOST_TURNS = 3
LATE_SECONDS = 0.4
# Makes sure that those who make a tenant's first key at the same time do.
MAKING_SECONDS = 0.05


@contextmanager
def kms_server() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="millrace-kms-"))
    (port,) = free_ports(1)
    endpoint = f"http://{LOOPBACK}:{port}"
    words = (sys.executable, "-m", "tests.support.kms_server", "-H", LOOPBACK, "-p", str(port))
    root = Path(__file__).parents[2]
    child = Child(Launch("kms", words, folder / "server.log", cwd=root, is_ready=lambda: _answers(endpoint)))
    child.start()
    try:
        wait_ready(child, START_SECONDS)
        yield endpoint
    finally:
        child.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _answers(endpoint: str) -> bool:
    try:
        return httpx2.get(f"{endpoint}/moto-api/", timeout=2).status_code == 200
    except httpx2.HTTPError:
        return False


class _Strict(KmsBackend):
    """Keys that are disabled or to be deleted do nothing, a key opens what it closed alone, and is turned so many times."""

    # By it moto finds the service's addresses.
    __module__ = KmsBackend.__module__

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.aliased: dict[str, float] = {}

    def create_key(self, *args: Any, **kwargs: Any) -> Any:
        time.sleep(MAKING_SECONDS)
        return super().create_key(*args, **kwargs)

    def encrypt(self, key_id: str, *args: Any, **kwargs: Any) -> Any:
        self._usable(self.any_id_to_key_id(key_id))
        return super().encrypt(key_id, *args, **kwargs)

    def decrypt(self, ciphertext_blob: bytes, encryption_context: dict[str, str], key_id: str | None = None) -> Any:
        plaintext, by = decrypt(self.keys, ciphertext_blob, encryption_context)
        if key_id is not None and self.any_id_to_key_id(key_id) != by:
            raise JsonRESTError("IncorrectKeyException", "The key ID in the request does not identify a CMK that can.")
        self._usable(by)
        return plaintext, self.keys[by].arn

    def rotate_key_on_demand(self, key_id: str) -> str:
        self._usable(key_id)
        if len(self.keys[key_id].rotations) == MOST_TURNS:
            raise JsonRESTError("LimitExceededException", "No more on-demand rotations of this key.")
        return super().rotate_key_on_demand(key_id)

    def disable_key(self, key_id: str) -> None:
        self._not_ending(key_id)
        super().disable_key(key_id)

    def schedule_key_deletion(self, key_id: str, pending_window_in_days: int) -> float:
        self._not_ending(key_id)
        return super().schedule_key_deletion(key_id, pending_window_in_days)

    def create_alias(self, target_key_id: str, alias_name: str) -> Any:
        self.aliased[alias_name] = time.monotonic()
        return super().create_alias(target_key_id, alias_name)

    def get_key_id_from_alias(self, alias_name: str) -> str | None:
        since = time.monotonic() - self.aliased.get(alias_name, 0.0)
        return (
            None if alias_name.endswith("late") and since < LATE_SECONDS else super().get_key_id_from_alias(alias_name)
        )

    def _usable(self, key: str) -> None:
        self._not_ending(key)
        if not self.keys[key].enabled:
            raise JsonRESTError("DisabledException", f"{key} is disabled.")

    def _not_ending(self, key: str) -> None:
        if self.keys[key].key_state == "PendingDeletion":
            raise JsonRESTError("KMSInvalidStateException", f"{key} is pending deletion.")


class _StrictResponse(KmsResponse):
    one_at_a_time = threading.Lock()

    def re_encrypt(self) -> str:
        source = self._get_param("SourceKeyId")
        self._validate_key_id(source)
        context = self._get_param("SourceEncryptionContext", {})
        self.kms_backend.decrypt(self._get_param("CiphertextBlob"), context, source)
        return KmsResponse.re_encrypt(self)

    def _set_alias(self, update: bool = False) -> str:
        with self.one_at_a_time:
            answer = KmsResponse._set_alias(self, update)
        if self._get_param("AliasName").endswith("lost"):
            lost = JsonRESTError("KMSInternalException", "Done, but nobody will know.")
            lost.code = 500
            raise lost
        return answer


if __name__ == "__main__":
    kms_backends.backend = _Strict
    urls.url_paths["{0}/$"] = _StrictResponse.dispatch
    main(sys.argv[1:])
