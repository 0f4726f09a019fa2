"""Secrets by reference: `env:NAME`, `file:NAME` or `k8s:NAME/KEY`. A declaration holds the reference.
The secret itself is read where it is used, and is never stored, logged or passed on."""

import os
from pathlib import Path

from millrace.model.errors import Invalid, Missing

# Where Kubernetes mounts the secrets that the platform's pods were given.
MOUNTED = Path("/var/run/secrets/millrace")
# A declaration can name only variables and files that are meant for sinks, never the platform's own secrets.
ENV_PREFIX = "MILLRACE_SECRET_"
FOLDER_VARIABLE = "MILLRACE_SECRET_FOLDER"


def read_secret(reference: str) -> str:
    scheme, _, name = reference.partition(":")
    match scheme:
        case "env":
            return _from_environment(name)
        case "file":
            return _from_file(name)
        case "k8s":
            return _content(MOUNTED, name)
    raise Invalid(
        f"{reference!r:.60} is not a reference to a secret.", remedy="Write env:NAME, file:NAME or k8s:NAME/KEY."
    )


def _from_environment(name: str) -> str:
    if not name.startswith(ENV_PREFIX):
        raise Invalid(f"The secret env:{name} cannot be used by a sink.", remedy=f"Name variables {ENV_PREFIX}….")
    value = os.environ.get(name)
    if value is None:
        raise Missing(
            f"The environment has no {name}.", remedy="Set it where the platform is started.", code="no_secret"
        )
    return value


def _from_file(name: str) -> str:
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is None:
        raise Missing("There is no folder of secrets.", remedy=f"Set {FOLDER_VARIABLE}.", code="no_secret")
    return _content(Path(folder), name)


def _content(folder: Path, name: str) -> str:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise Missing(f"There is no secret {name!r:.60}.", remedy=f"Put it into {folder}.", code="no_secret")
    return path.read_text().strip()
