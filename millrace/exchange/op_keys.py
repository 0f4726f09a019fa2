"""The keys that sign ops, oldest first: one file each, which only the server reads.

The server writes a file when it makes a key, and never changes it. If a file is lost, the ops that its key signed can no
longer be told from forged ones: the server refuses to start until the file is restored, or the operator accepts the log."""

import json
import os
from dataclasses import dataclass

from millrace.atomic import create_file
from millrace.exchange.home import Home
from millrace.model.errors import Clash, Corrupt
from millrace.wire.signing import KEY_BYTES, OpKey

ROTATE, ACCEPT = "rotate", "accept-log"
_PRIVATE_FILE, _PRIVATE_FOLDER = 0o600, 0o700


@dataclass(frozen=True, slots=True)
class OpKeyFiles:
    home: Home

    @property
    def folder(self) -> str:
        return str(self.home.op_keys)

    def read(self) -> list[OpKey]:
        folder = self.home.op_keys
        names = sorted(file.name for file in folder.iterdir() if file.name.isdigit()) if folder.is_dir() else []
        for number, name in enumerate(names, 1):
            if name != f"{number:04d}":
                raise Corrupt(
                    f"The file {folder / f'{number:04d}'} is missing: the key that signed earlier ops.",
                    remedy="Restore it from a backup of the home.",
                )
        return [self._key(name) for name in names]

    def _key(self, name: str) -> OpKey:
        path = self.home.op_keys / name
        try:
            found = json.loads(path.read_text())
            secret, since = bytes.fromhex(found["key"]), {int(place): int(at) for place, at in found["since"].items()}
            if len(secret) != KEY_BYTES:
                raise ValueError(f"a key of {len(secret)} bytes")
            accepts_earlier = bool(found.get("accepts_earlier"))
            return OpKey(int(name), secret, str(found["cluster"]), since, accepts_earlier)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corrupt(
                f"{path} holds no key for ops: {type(error).__name__}.", remedy="Restore it from a backup of the home."
            ) from error

    def add(self, key: OpKey) -> None:
        """Durable before anything is signed by it."""
        folder = self.home.op_keys
        folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        document: dict[str, object] = {"key": key.secret.hex(), "cluster": key.cluster, "since": key.since}
        if key.accepts_earlier:
            document["accepts_earlier"] = True
        said = json.dumps(document).encode()
        if not create_file(folder / f"{key.number:04d}", said, durable=True, mode=_PRIVATE_FILE):
            raise Clash(f"Another server has made key {key.number:04d} in {folder}.", remedy="Start one server only.")
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)

    def is_asked(self, wish: str) -> bool:
        return (self.home.op_keys / wish).exists()

    def done(self, wish: str) -> None:
        (self.home.op_keys / wish).unlink(missing_ok=True)
