"""The JSON Schemas of documents, with the settings of every kind of sink that is registered here."""

from typing import Any

from millrace.declare.json_schemas import SCHEMAS, Schema, sinks_schema
from millrace.model.errors import Missing
from millrace.model.sinks import DELTA_KIND, REMOTE_DELTA_KIND
from millrace.sink.registry import kinds, settings_class
from millrace.sink.settings import properties, required


def schema_named(name: str) -> Schema:
    if name not in SCHEMAS:
        raise Missing(f"There is no schema {name!r:.60}.", remedy=f"Known: {', '.join(SCHEMAS)}.", code="no_schema")
    connectors = {kind: _settings(kind) for kind in kinds() if kind != DELTA_KIND}
    # A remote Delta table is declared as `delta` with a location.
    return SCHEMAS[name](sinks_schema({DELTA_KIND: (connectors[REMOTE_DELTA_KIND][0], []), **connectors}))


def _settings(kind: str) -> tuple[dict[str, Any], list[str]]:
    model = settings_class(kind)
    return properties(model), required(model)
