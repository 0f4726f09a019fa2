"""How a process logs in to the log: with its account at the embedded broker, as the operator says elsewhere."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from millrace.embed.accounts import Accounts
from millrace.embed.errors import PasswordMissing
from millrace.settings import KafkaSettings
from millrace.wire.access import Account, cluster_of
from millrace.wire.java_options import java_options

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_a_process_logs_in_with_its_own_password(tmp_path: Path) -> None:
    passwords = Accounts(tmp_path / "made", {Account.SERVER: (), Account.DATA_PLANE: ()}).passwords()
    settings = KafkaSettings(passwords=tmp_path / "made", options={"sasl.username": SecretStr("ignored")})
    cluster = cluster_of(settings, "127.0.0.1:9", Account.DATA_PLANE)
    assert cluster.client_config() == {
        "bootstrap.servers": "127.0.0.1:9",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "data-plane",
        "sasl.password": passwords[Account.DATA_PLANE],
    }
    assert passwords[Account.DATA_PLANE] not in repr(cluster)


def test_a_missing_password_is_named_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(PasswordMissing, match="no password of 'server'") as told:
        cluster_of(KafkaSettings(passwords=tmp_path), "127.0.0.1:9", Account.SERVER)
    assert "millrace-kafka" in told.value.remedy
    (tmp_path / "server").write_text("\n")
    with pytest.raises(PasswordMissing, match="empty"):
        cluster_of(KafkaSettings(passwords=tmp_path), "127.0.0.1:9", Account.SERVER)


def test_a_folder_that_nobody_can_add_to_must_hold_every_password(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    with pytest.raises(PasswordMissing, match="'admin'"):
        Accounts(tmp_path / "taken", {}).passwords()


def test_an_external_cluster_gets_what_the_operator_says() -> None:
    options = {"security.protocol": SecretStr("SSL"), "ssl.ca.location": SecretStr("/etc/ca.pem")}
    config = cluster_of(KafkaSettings(options=options), "kafka:9092", Account.SERVER).client_config()
    assert config == {"bootstrap.servers": "kafka:9092", "security.protocol": "SSL", "ssl.ca.location": "/etc/ca.pem"}


@pytest.mark.parametrize(
    ("ours", "java"),
    [
        ({"bootstrap.servers": "a:1"}, {"bootstrap.servers": "a:1"}),
        (
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "me", "sasl.password": 'a"b\\c'},
            {
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": f'{SCRAM} required username="me" password="a\\"b\\\\c";',
            },
        ),
        (
            {"sasl.mechanisms": "PLAIN", "sasl.username": "me", "sasl.password": "x"},
            {
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
                'username="me" password="x";',
            },
        ),
        ({"ssl.ca.location": "/ca.pem"}, {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"}),
    ],
    ids=["an address", "SCRAM", "PLAIN", "an authority"],
)
def test_sparks_client_is_told_the_same_in_its_own_words(ours: dict[str, str], java: dict[str, str]) -> None:
    assert java_options(ours) == java
