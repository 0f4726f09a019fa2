"""Files: Parquet, Avro, JSON Lines or CSV in a folder, a bucket or HDFS. Chunks are written once; imports have a manifest.

Files are only added. A table with a key must say `mode: changelog`. Then older versions of a row stay beside newer ones, and
deletes are rows whose `_deleted` is true. For each key, the row with the greatest `_version` counts."""

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from millrace.model.errors import Invalid
from millrace.model.sinks import Abilities
from millrace.model.table import TableDeclaration
from millrace.sink.context import SinkContext
from millrace.sink.settings import ConnectorSettings, SecretReference, Uri

CHANGELOG = "changelog"
_POWER_SAFE = ("s3://", "gs://")


class FilesSettings(ConnectorSettings):
    kind: ClassVar[str] = "files"
    connector: ClassVar[str] = "millrace.sink.files.sink:FilesSink"
    abilities: ClassVar[Abilities] = Abilities(
        upsert=False, delete=False, nested_types=True, exactly_once_append=True, takes_ends=True, deletes_aged=True
    )

    path: Uri = Field(
        examples=["file:///srv/exports/daily"],
        description="s3://BUCKET/PATH, gs://BUCKET/PATH, webhdfs://HOST:PORT/PATH (swebhdfs: TLS), or file:///PATH "
        "below the folder that the operator allows. Tenant and table are folders in it. In a local path the tenant's "
        "folder comes first.",
    )
    format: Literal["parquet", "avro", "jsonl", "csv"] = Field("parquet", description="The format of the files.")
    layout: Literal["import", "time"] = Field(
        "import", description="A folder per import, or per window of time in which the import was admitted."
    )
    window: Literal["hour", "day", "month"] = Field(
        "day", description="The length of a window with `layout: time`, in UTC."
    )
    partition_by: list[str] = Field(
        [], description="Columns whose values become folders NAME=VALUE. The files keep these columns."
    )
    mode: Literal["plain", "changelog"] = Field(
        "plain",
        description="Files are only added, so a table with a primary key needs `changelog`: older versions of a row stay. "
        "For each key the greatest `_version` counts, unless its `_deleted` is true.",
    )
    region: str = Field("us-east-1", description="The region of the S3 bucket.")
    endpoint: Uri | None = Field(
        None, description="Another address that speaks the protocol of S3 or of Google Cloud Storage."
    )
    access_key: SecretReference | None = Field(
        None, description="S3: a reference to the key's name: env:…, file:…, k8s:… or vault:…."
    )
    secret_key: SecretReference | None = Field(None, description="S3: a reference to the key itself.")
    credentials: SecretReference | None = Field(
        None, description="Google: a reference to a service account's key file."
    )
    user: str | None = Field(None, description="HDFS: the user that writes, if the cluster does not authenticate.")
    token: SecretReference | None = Field(None, description="HDFS: a reference to a delegation token.")

    @property
    def is_changelog(self) -> bool:
        return self.mode == CHANGELOG

    def abilities_for(self, table: TableDeclaration, name: str, context: SinkContext) -> Abilities:
        # Not at the top: the layout needs polars, which not every process that asks for abilities has loaded.
        from millrace.sink.files.layout import refuse_unfit  # noqa: PLC0415
        from millrace.sink.files.store import check_path  # noqa: PLC0415

        check_path(self, context)
        refuse_unfit(self, table)
        if table.primary_key and not self.is_changelog:
            raise Invalid(
                f"Sink {name!r} (files) of {table.name} cannot replace rows by key: files are only added.",
                remedy="Give it mode: changelog, and let readers take the greatest _version of each key; or another sink.",
                code="sink_unable",
            )
        survives = "power" if self.path.startswith(_POWER_SAFE) else "process"
        return replace(self.abilities, upsert=self.is_changelog, delete=self.is_changelog, survives=survives)
