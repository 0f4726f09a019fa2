"""The sample app as the program of tenants whose agreement names none (`MILLRACE_MYSIMBDP`)."""

from pathlib import Path

from millrace.atomic import replace_file
from millrace.model.agreement import DEFAULT_PROGRAM
from millrace.model.errors import Missing

SAMPLE = Path(__file__).parents[2] / "apps" / DEFAULT_PROGRAM
_EXECUTABLE = 0o755


def install_default_app(programs: Path) -> None:
    """Where the ingestion managers look for programs. One that the operator put there under the same name stays."""
    place = programs / DEFAULT_PROGRAM
    if place.exists():
        return
    if not SAMPLE.is_file():
        raise Missing(
            f"The sample app is not at {SAMPLE}.",
            remedy=f"Start the platform from a clone of the repository, or put a program at {place}.",
        )
    replace_file(place, SAMPLE.read_bytes(), mode=_EXECUTABLE)
    place.chmod(_EXECUTABLE)
