"""Settings of our Kafka client in the words of the Java client, which Spark uses."""

from collections.abc import Mapping

_MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM": "scram.ScramLoginModule"}
_LOGIN = ("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password")


def java_options(options: Mapping[str, object]) -> dict[str, str]:
    """The same names, except for the account and the certificates of authorities."""
    said = {name: str(value) for name, value in options.items()}
    mechanism = said.get("sasl.mechanism") or said.get("sasl.mechanisms")
    java = {name: value for name, value in said.items() if name not in _LOGIN}
    if mechanism is not None:
        java["sasl.mechanism"] = mechanism
    if "sasl.username" in said and mechanism is not None:
        module = _MODULES.get(mechanism.partition("-")[0])
        if module is not None:
            who = f"username={_quoted(said['sasl.username'])} password={_quoted(said.get('sasl.password', ''))}"
            java["sasl.jaas.config"] = f"org.apache.kafka.common.security.{module} required {who};"
    if "ssl.ca.location" in java:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": java.pop("ssl.ca.location")}
    return java


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
