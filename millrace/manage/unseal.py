"""`python -m millrace.manage.unseal FILE…`: sealed files below `handled` in, plain on standard output; for the operator."""

import shutil
import sys
from pathlib import Path

from millrace.exchange.home import Home
from millrace.exchange.keys import KeyFiles, keyring_of
from millrace.model.errors import Invalid, MillraceError
from millrace.settings import Settings, wrong_settings_end
from millrace.staging.sealed import FRAME_BYTES, SealedFile


def main(paths: list[str]) -> None:
    with wrong_settings_end():
        settings = Settings()
    home = Home(settings.home)
    keys = keyring_of(KeyFiles(home), settings.kms)
    for path in map(Path, paths):
        with SealedFile(path, path.name, tenant_of(home, path), keys).open() as file:
            shutil.copyfileobj(file, sys.stdout.buffer, FRAME_BYTES)


def tenant_of(home: Home, path: Path) -> str:
    handled = home.handled("any").parent.resolve()
    inner = path.resolve()
    if handled not in inner.parents:
        raise Invalid(f"{path} does not lie below {handled}.", remedy="Set MILLRACE_HOME, or name another file.")
    return inner.relative_to(handled).parts[0]


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (MillraceError, OSError) as failed:
        sys.exit(str(failed))
