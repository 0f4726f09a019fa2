"""Who may do what at the embedded broker: accounts and their grants in, password files and the broker's ACLs out.

Each account has a password file of its own, readable by the owner of the home alone. The administrator may do everything:
only the broker itself and whoever prepares it use this account."""

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from millrace.atomic import create_file
from millrace.embed.errors import PasswordMissing

ADMIN = "admin"
SCRAM = "SCRAM-SHA-256"
# The least that Kafka allows. More would protect weak passwords, and these have 256 random bits.
SCRAM_ROUNDS = 4096
REQUEST_SECONDS = 10.0
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
_ANY_ACL = AclBindingFilter(
    ResourceType.ANY,
    None,  # type: ignore[arg-type]
    ResourcePatternType.ANY,
    None,  # type: ignore[arg-type]
    None,  # type: ignore[arg-type]
    AclOperation.ANY,
    AclPermissionType.ANY,
)


@dataclass(frozen=True, slots=True)
class Grant:
    """Operations on one resource, or on all whose names begin with `name`."""

    resource: ResourceType
    name: str
    operations: tuple[AclOperation, ...]
    is_prefix: bool = False


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts of one broker: their password files below `folder`, and what each may do besides the administrator."""

    folder: Path
    grants: Mapping[str, tuple[Grant, ...]]

    def passwords(self) -> dict[str, str]:
        """Of every account; those that are missing are made."""
        return {name: self._made(name) for name in (ADMIN, *self.grants)}

    def _made(self, name: str) -> str:
        try:
            return password_of(self.folder, name)
        except PasswordMissing as missing:
            try:
                self.folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
                create_file(self.folder / name, secrets.token_hex(32).encode(), durable=True, mode=PRIVATE_FILE)
            except OSError:
                # A cluster mounts them; nobody can add one there.
                raise missing from None
            return password_of(self.folder, name)

    def acls(self) -> Iterator[AclBinding]:
        for account, grants in self.grants.items():
            for grant in grants:
                pattern = ResourcePatternType.PREFIXED if grant.is_prefix else ResourcePatternType.LITERAL
                for operation in grant.operations:
                    who = f"User:{account}", "*", operation, AclPermissionType.ALLOW
                    yield AclBinding(grant.resource, grant.name, pattern, *who)


def password_of(folder: Path, account: str) -> str:
    """Raises PasswordMissing if the file is not there, is empty or is not ours to read."""
    try:
        password = (folder / account).read_text().strip()
    except OSError as error:
        raise PasswordMissing(account, folder, error.strerror or "it cannot be read") from error
    if not password:
        raise PasswordMissing(account, folder, "the file is empty")
    return password


def fingerprint(passwords: Mapping[str, str]) -> str:
    """The same for the same accounts with the same passwords."""
    said = "\n".join(f"{name} {password}" for name, password in sorted(passwords.items()))
    return hashlib.sha256(said.encode()).hexdigest()


def scram_arguments(passwords: Mapping[str, str]) -> list[str]:
    """For the tool that formats storage."""
    said = f"{SCRAM}=[name={{}},iterations={SCRAM_ROUNDS},password={{}}]"
    return [word for name, password in passwords.items() for word in ("--add-scram", said.format(name, password))]


def login(account: str, password: str) -> dict[str, str]:
    """How a client says who it is."""
    said = {"sasl.mechanism": SCRAM, "sasl.username": account, "sasl.password": password}
    return {"security.protocol": "SASL_PLAINTEXT", **said}


def set_passwords(admin: AdminClient, passwords: Mapping[str, str]) -> None:
    """Of a running broker; what it knew before under these names is forgotten."""
    how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, SCRAM_ROUNDS)
    wanted: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(name, how, password.encode()) for name, password in passwords.items()
    ]
    for done in admin.alter_user_scram_credentials(wanted, request_timeout=REQUEST_SECONDS).values():
        done.result()


def set_acls(admin: AdminClient, accounts: Accounts) -> None:
    """Gives each account what it may do and takes away what else it could; accounts that are not ours keep theirs."""
    known = set(admin.describe_acls(_ANY_ACL, request_timeout=REQUEST_SECONDS).result())
    wanted = set(accounts.acls())
    ours = {f"User:{name}" for name in (ADMIN, *accounts.grants)}
    if missing := wanted - known:
        for done in admin.create_acls(list(missing), request_timeout=REQUEST_SECONDS).values():
            done.result()
    if extra := [acl for acl in known - wanted if acl.principal in ours]:
        for gone in admin.delete_acls([_exactly(acl) for acl in extra], request_timeout=REQUEST_SECONDS).values():
            gone.result()


def _exactly(acl: AclBinding) -> AclBindingFilter:
    pattern = acl.restype, acl.name, acl.resource_pattern_type
    return AclBindingFilter(*pattern, acl.principal, acl.host, acl.operation, acl.permission_type)
