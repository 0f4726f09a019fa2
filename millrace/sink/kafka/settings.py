"""A Kafka topic of the tenant: rows are records under their keys, deletes are tombstones, and the topic is compacted.

Compaction keeps the last record of a key, so no record may follow a newer one. A second topic, the journal, remembers the
version of each key; it is written in the same transaction as the rows. A row that is older than the remembered version is
left out. Versions that are too old for the journal are looked up in the topic itself."""

from typing import ClassVar, Literal

from pydantic import Field

from millrace.model.errors import Invalid
from millrace.model.sinks import Abilities
from millrace.sink.settings import PASSWORD, ConnectorSettings, Host, SecretReference
from millrace.wire.topics import PREFIX

# Topics of the platform begin with it and a dot, as a tenant's begin with the tenant's name and one.
_PLATFORMS = PREFIX.removesuffix(".")


class KafkaSinkSettings(ConnectorSettings):
    kind: ClassVar[str] = "kafka"
    connector: ClassVar[str] = "millrace.sink.kafka.sink:KafkaSink"
    # Rows are only passed on. The topic's own retention decides how long they stay.
    abilities: ClassVar[Abilities] = Abilities(atomic_publish=True, nested_types=True, exactly_once_append=True)

    hosts: list[Host] = Field(min_length=1, description="Some of the cluster's brokers.")
    port: int = Field(9092, description="Their port.")
    topic: str | None = Field(
        None, description="The topic is TENANT.TOPIC. Without this setting TOPIC is the table's name."
    )
    format: Literal["json", "avro"] = Field(
        "json", description="The format of values. Avro schemas are in the second topic, TENANT.TOPIC.millrace."
    )
    partitions: int = Field(6, description="The number of partitions of a new topic.")
    replication: int = Field(-1, description="The replication of new topics. -1 means the cluster's default.")
    user: str | None = Field(None, description="The user that writes, if the cluster uses SASL.")
    password: SecretReference | None = Field(None, description=PASSWORD)
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="The SASL mechanism."
    )
    tls: bool = Field(False, description="Encrypt, and check the brokers' certificates.")

    def refuse_tenant(self, tenant: str) -> None:
        if tenant == _PLATFORMS:
            raise Invalid(
                f"Topics of tenant {tenant!r} would be called like the platform's own ({PREFIX}…).",
                remedy="Use a tenant of another name for tables with a Kafka sink, or another kind of sink.",
                code="reserved_topic",
            )
