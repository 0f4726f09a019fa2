"""A Kafka topic of the tenant's: rows as records under their keys, deletes as tombstones, on a compacted topic.

Compaction keeps the last record of a key, so no record may follow that is older than one before it. What was written is
remembered in a topic beside (`kafka_journal`), in the same transaction as the rows; a row that is older than what is
remembered is left out. What is too old to be remembered is looked up in the topic itself."""

from typing import ClassVar, Literal

from pydantic import Field

from millrace.model.sinks import Abilities
from millrace.sink.settings import PASSWORD, ConnectorSettings, Host, SecretReference


class KafkaSinkSettings(ConnectorSettings):
    kind: ClassVar[str] = "kafka"
    connector: ClassVar[str] = "millrace.sink.kafka.sink:KafkaSink"
    # Rows are only passed on: the topic's own retention says how long they stay.
    abilities: ClassVar[Abilities] = Abilities(atomic_publish=True, nested_types=True, exactly_once_append=True)

    hosts: list[Host] = Field(min_length=1, description="Some of the cluster's brokers.")
    port: int = Field(9092, description="Their port.")
    topic: str | None = Field(None, description="The topic is TENANT.TOPIC; left out, it is called as the table.")
    format: Literal["json", "avro"] = Field(
        "json", description="Of the values. Avro's schemas are in the topic beside, TENANT.TOPIC.millrace."
    )
    partitions: int = Field(6, description="Of the topic, when it is made.")
    replication: int = Field(-1, description="Of both topics; -1 is the cluster's own.")
    user: str | None = Field(None, description="Who writes, if the cluster asks (SASL).")
    password: SecretReference | None = Field(None, description=PASSWORD)
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="How the user proves to be one."
    )
    tls: bool = Field(False, description="Encrypt, and check the brokers' certificates.")
