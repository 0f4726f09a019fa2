"""A connector of another package: everything the platform needs to know of it is in this one file."""

from typing import ClassVar, Literal

from pydantic import Field

from millrace.model.sinks import Abilities, Fault
from millrace.model.table import Definition
from millrace.sink.connector import Definitions, Work
from millrace.sink.context import SinkContext
from millrace.sink.settings import ConnectorSettings, Host, SecretReference

WRITTEN: list[tuple[str, Work]] = []
"""What every toy sink of this process was given, with the shelf it was put on."""


class ToySettings(ConnectorSettings):
    kind: ClassVar[str] = "toy"
    connector: ClassVar[str] = "tests.support.toy_sink:ToySink"
    abilities: ClassVar[Abilities] = Abilities(takes_ends=True, deletes_aged=True, keeps_table=True)

    shelf: str = Field(description="Where toys are put.")
    host: Host = Field("8.8.8.8", description="Who keeps them.")
    port: int = Field(4, description="Its port.")
    colour: Literal["red", "green"] = Field("red", description="Of the box.")
    key: SecretReference | None = Field(None, description="A reference to what opens the box.")


class ToySink:
    def __init__(self, settings: ToySettings, context: SinkContext) -> None:
        self._shelf = f"{settings.colour} {settings.shelf}"

    def check(self) -> None: ...

    def prepare(self, definition: Definition, definitions: Definitions) -> None: ...

    def write(self, work: Work) -> None:
        WRITTEN.append((self._shelf, work))

    def classify(self, error: BaseException) -> Fault:
        return Fault.SINK

    def close(self) -> None: ...
