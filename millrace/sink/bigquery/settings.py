"""BigQuery: a load job into a staging table and one guarded MERGE, so that the greatest version of each key stays.

A dataset per tenant. Deleted keys stay as rows marked so in the table; readers have a view without them. What the table was
prepared for and its floor are labels of the table."""

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
        description="How the tenant's dataset begins: its name is this, an underscore and the tenant's name.",
    )
    location: str = Field("US", description="Where the dataset is made.")
    credentials: SecretReference | None = Field(
        None,
        description="A reference to a service account's key file (env:…, file:… or k8s:…). The account may make "
        "datasets and tables, and run jobs. Needed but with an endpoint of your own.",
    )
    endpoint: Uri | None = Field(None, description="An address that speaks BigQuery's protocol, if not Google's own.")

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if not self.dataset.replace("_", "a").isalnum() or not self.dataset.isascii():
            raise Invalid(
                f"{self.dataset!r:.60} cannot begin a dataset's name.",
                remedy="Use letters, digits and '_'.",
                code="bad_sink",
            )
        # Only an address of the tenant's own may do without; else the library would look for the platform's account.
        if self.credentials is None and self.endpoint is None:
            raise Invalid(
                "A BigQuery sink needs credentials.",
                remedy="Give a reference to a secret of yours.",
                code="no_credentials",
            )
        return self
