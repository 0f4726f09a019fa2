"""Delta tables in a bucket or in HDFS. Each delivery is one commit, and the last version wins. The tables are the same as on
the platform's own disk; any reader of Delta can read them."""

from dataclasses import replace
from typing import ClassVar, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from millrace.model.errors import Invalid
from millrace.model.sinks import REMOTE_DELTA_KIND, Abilities
from millrace.model.table import TableDeclaration
from millrace.outbound.webhdfs import NAME_NODE_PORTS
from millrace.sink.context import SinkContext
from millrace.sink.settings import ConnectorSettings, SecretReference, Uri, is_plain

PLATFORM = "platform"
SCHEMES = ("s3", *NAME_NODE_PORTS)


class DeltaRemoteSettings(ConnectorSettings):
    kind: ClassVar[str] = REMOTE_DELTA_KIND
    connector: ClassVar[str] = "millrace.sink.delta.remote:DeltaRemoteSink"
    abilities: ClassVar[Abilities] = Abilities(
        atomic_publish=True, nested_types=True, exactly_once_append=True, survives="power"
    )

    location: Uri = Field(
        description="s3://BUCKET/PATH, hdfs://HOST:PORT/PATH or webhdfs://HOST:PORT/PATH (swebhdfs: TLS): the "
        "table is below it at TENANT/TABLE. `platform`: where the operator keeps tables.",
    )
    endpoint: Uri | None = Field(
        None,
        description="S3: another address that speaks its protocol and honours If-None-Match. "
        "HDFS: where the name node answers HTTP, if not at http://HOST:9870.",
    )
    region: str = Field("us-east-1", description="S3: the region of the bucket.")
    access_key: SecretReference | None = Field(
        None, description="S3: a reference to the key's name: env:…, file:…, k8s:… or vault:…."
    )
    secret_key: SecretReference | None = Field(None, description="S3: a reference to the key itself.")
    session_token: SecretReference | None = Field(
        None, description="S3: a reference to the token that goes with temporary keys."
    )
    user: str | None = Field(None, description="HDFS: the user that writes, if the cluster does not authenticate.")
    token: SecretReference | None = Field(None, description="HDFS: a reference to a delegation token.")

    @model_validator(mode="after")
    def _usable(self) -> Self:
        """Refuses a place that could never be written to."""
        if self.location == PLATFORM:
            if self.model_fields_set != {"location"}:
                raise Invalid("The platform's lake has no settings of yours.", remedy="Leave all but the location out.")
            return self
        parts = urlsplit(self.location)
        if parts.scheme not in SCHEMES or not is_plain(parts):
            remedy = "Write s3://BUCKET/PATH or hdfs://HOST:PORT/PATH."
            raise Invalid(f"{self.location!r:.80} is no place for a table.", remedy=remedy, code="bad_path")
        if parts.scheme == "s3":
            self.refuse_without(("access_key", "secret_key"), f"A table in {self.location!r:.60}")
        return self

    def abilities_for(self, table: TableDeclaration, name: str, context: SinkContext) -> Abilities:
        # HDFS answers as soon as its data nodes have the bytes in memory.
        return replace(self.abilities, survives="power" if self.location.startswith("s3:") else "process")


# Where the operator keeps rejected rows. No tenant can declare it, because validation refuses the location.
ERRORS_PLACE = DeltaRemoteSettings.model_construct({"location"}, location="platform-errors")
