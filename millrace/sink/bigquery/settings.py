"""BigQuery: a load job into a staging table and one guarded MERGE, so that the greatest version of each key stays.

Each tenant has a dataset. Deleted keys stay in the table as marked rows; readers have a view without them. The table's labels
hold its definition and its floor."""

from typing import ClassVar, Self

from pydantic import Field, model_validator

from millrace.model.errors import Invalid
from millrace.model.sinks import Abilities
from millrace.sink.settings import ConnectorSettings, SecretReference, Uri


class BigQuerySettings(ConnectorSettings):
    kind: ClassVar[str] = "bigquery"
    connector: ClassVar[str] = "millrace.sink.bigquery.sink:BigQuerySink"
    extra: ClassVar[str | None] = "bigquery"
    abilities: ClassVar[Abilities] = Abilities(
        nested_types=True, exactly_once_append=True, survives="power", deletes_aged=True, keeps_table=True
    )

    project: str = Field(
        examples=["acme-analytics"], description="The project that holds the datasets and runs the jobs."
    )
    dataset: str = Field(
        "millrace",
        description="The prefix of datasets: a tenant's dataset is this, an underscore and the tenant's name.",
    )
    location: str = Field("US", description="Where datasets are created.")
    credentials: SecretReference | None = Field(
        None,
        description="A reference to a service account's key file (env:…, file:…, k8s:… or vault:…). The account must be able "
        "to create datasets and tables and to run jobs. Required unless you set an endpoint.",
    )
    endpoint: Uri | None = Field(None, description="Another address that speaks BigQuery's protocol.")

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if not self.dataset.replace("_", "a").isalnum() or not self.dataset.isascii():
            raise Invalid(
                f"{self.dataset!r:.60} cannot begin a dataset's name.",
                remedy="Use letters, digits and '_'.",
                code="bad_sink",
            )
        # Without credentials the library would use the platform's account, except at an address of the tenant's own.
        if self.credentials is None and self.endpoint is None:
            raise Invalid(
                "A BigQuery sink needs credentials.",
                remedy="Give a reference to a secret of yours.",
                code="no_credentials",
            )
        return self
