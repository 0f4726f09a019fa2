"""Which process may do what in the log: one account of the embedded broker for each, with the topics that are its own.

An external cluster has the operator's own rules; there a client uses the settings that the operator gives."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType

from millrace.embed.accounts import Accounts, Grant, login, password_of
from millrace.settings import KafkaSettings
from millrace.wire.client import Cluster
from millrace.wire.topics import EVENTS, IMPORT_ERROR, PREFIX, PROGRESS, RAW_INPUT, TABLE_OPS, VALIDATED_INPUT

# Consumers of ours and of Spark. No position is kept for them, but the broker wants to know who asks.
OUR_GROUPS, SPARK_GROUPS = "millrace-", "spark-kafka-"


class Account(StrEnum):
    """Also the names of the password files."""

    SERVER = "server"
    DATA_PLANE = "data-plane"
    # For tools: reads everything, writes nothing.
    OPERATOR = "operator"


def _on(operation: AclOperation, *topics: str) -> tuple[Grant, ...]:
    return tuple(Grant(ResourceType.TOPIC, topic, (operation,)) for topic in topics)


def _groups(*prefixes: str) -> tuple[Grant, ...]:
    return tuple(Grant(ResourceType.GROUP, prefix, (AclOperation.READ,), is_prefix=True) for prefix in prefixes)


_KEEPS = Grant(
    ResourceType.TOPIC, PREFIX, (AclOperation.CREATE, AclOperation.READ, AclOperation.DELETE), is_prefix=True
)
_READS = Grant(ResourceType.TOPIC, PREFIX, (AclOperation.READ,), is_prefix=True)
GRANTS: dict[str, tuple[Grant, ...]] = {
    # It makes and trims every topic, but writes only what begins here: ops, chunks and events.
    Account.SERVER: (_KEEPS, *_on(AclOperation.WRITE, TABLE_OPS, RAW_INPUT, EVENTS), *_groups(OUR_GROUPS)),
    # Chunks that waited for their tenant's keys go back to raw-input.
    Account.DATA_PLANE: (
        *_on(AclOperation.READ, RAW_INPUT, VALIDATED_INPUT, IMPORT_ERROR),
        *_on(AclOperation.WRITE, RAW_INPUT, VALIDATED_INPUT, IMPORT_ERROR, PROGRESS),
        *_groups(OUR_GROUPS, SPARK_GROUPS),
    ),
    Account.OPERATOR: (_READS, Grant(ResourceType.GROUP, "*", (AclOperation.READ,))),
}


def broker_accounts(folder: Path) -> Accounts:
    """Of the embedded broker, with their password files in this folder."""
    return Accounts(folder, GRANTS)


def cluster_of(settings: KafkaSettings, bootstrap: str, account: Account) -> Cluster:
    """The log as one process reaches it."""
    options = tuple((name, secret.get_secret_value()) for name, secret in settings.options.items())
    cluster = Cluster(bootstrap, options)
    return cluster if settings.passwords is None else as_account(cluster, settings.passwords, account)


def as_account(cluster: Cluster, folder: Path, account: str) -> Cluster:
    """The embedded broker as an account reaches it whose password is in this folder."""
    return replace(cluster, options=tuple(login(account, password_of(folder, account)).items()))
