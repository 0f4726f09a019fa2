"""Tenant keys in AWS KMS, each behind an alias: alias/<prefix><tenant>.

KMS rotates a key a limited number of times and still unwraps by the old material. When it refuses, the tenant gets another
key and the alias moves on to it. The aliases …/1, …/2 keep all the tenant's keys in reach, to unwrap and to destroy."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import count
from typing import Any

from millrace.model.errors import Invalid, KeyGone, MillraceError, Unavailable
from millrace.model.names import checked_name
from millrace.settings import KmsSettings

try:
    from boto3.session import Session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
except ImportError as error:
    raise Invalid("Keys in AWS KMS need boto3.", remedy="pip install millrace[aws-kms]") from error

CONNECT_SECONDS, ANSWER_SECONDS = 3, 5
ATTEMPTS = 3
# The shortest that KMS allows. The key cannot be used from the first day on.
DAYS_TO_DELETION = 7
# A new alias is not visible everywhere in KMS at once.
KNOWN_SECONDS, PAUSE_SECONDS = 10.0, 0.2
LATE_SECONDS = 2.0


class _NoKey(KeyGone):
    """There is no key behind the alias."""


class _OtherKey(KeyGone):
    """Another key than the named one wrapped it."""


class _AliasTaken(Unavailable):
    pass


class _NotYetKnown(Unavailable):
    """The alias is not visible yet, or does not exist."""


class _NotRotated(Unavailable):
    """KMS rotates this key no more, or cannot rotate its kind."""


_KINDS: dict[str, type[MillraceError]] = {
    "NotFoundException": _NoKey,
    "IncorrectKeyException": _OtherKey,
    "InvalidCiphertextException": KeyGone,
    "DisabledException": Unavailable,
    "KMSInvalidStateException": KeyGone,
    "AlreadyExistsException": _AliasTaken,
    "LimitExceededException": _NotRotated,
    "UnsupportedOperationException": _NotRotated,
}


class AwsKms:
    def __init__(self, settings: KmsSettings) -> None:
        self._prefix = settings.prefix
        self._client = Session().client(
            "kms",
            region_name=settings.region,
            endpoint_url=settings.endpoint,
            config=Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=ANSWER_SECONDS,
                retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
            ),
        )

    def wrap(self, tenant: str, secret: bytes, context: str, *, is_first: bool = True) -> bytes:
        alias = self._alias(tenant)
        with suppress(_NoKey):
            return self._encrypt(alias, secret, context)
        return self._encrypt(self._make(tenant, alias), secret, context)

    def unwrap(self, tenant: str, wrapped: bytes, context: str) -> bytes:
        def by(key: str) -> bytes:
            opened = self._ask("decrypt", KeyId=key, CiphertextBlob=wrapped, EncryptionContext=_bound(context))
            return bytes(opened["Plaintext"])

        return self._by_any_key(tenant, by)

    def rewrap(self, tenant: str, wrapped: bytes, context: str) -> bytes:
        def by(key: str) -> bytes:
            moved = self._ask(
                "re_encrypt",
                CiphertextBlob=wrapped,
                SourceKeyId=key,
                SourceEncryptionContext=_bound(context),
                DestinationKeyId=self._alias(tenant),
                DestinationEncryptionContext=_bound(context),
            )
            return bytes(moved["CiphertextBlob"])

        return self._by_any_key(tenant, by)

    def rotate(self, tenant: str) -> None:
        alias = self._alias(tenant)
        try:
            self._ask("rotate_key_on_demand", KeyId=self._key(alias))
        except _NoKey:
            self._make(tenant, alias)
        except _NotRotated:
            self._move_on(tenant, alias)

    def destroy(self, tenant: str) -> str:
        keys = self._keys(self._alias(tenant))
        ends = [self._end(key) for key in set(keys.values())]
        # The alias itself last: a repeated call finds the other names through it.
        for name in reversed(keys):
            with suppress(_NoKey):
                self._ask("delete_alias", AliasName=name)
        return f"{max(ends):%Y-%m-%d}" if ends else "now"

    def describe(self, tenant: str) -> dict[str, Any] | None:
        alias = self._alias(tenant)
        keys = set(self._keys(alias).values())
        if not keys:
            return None
        turns = [self._ask("list_key_rotations", KeyId=key, Limit=1000)["Rotations"] for key in keys]
        return {"keeper": "aws", "name": alias, "version": sum(1 + len(turned) for turned in turns)}

    def _by_any_key(self, tenant: str, act: Callable[[str], bytes]) -> bytes:
        """Names each key: without a name KMS would take any key that it may use, also another tenant's."""
        alias = self._alias(tenant)
        for name in _names(alias):
            try:
                return act(name)
            except _OtherKey:
                continue
            except _NoKey as error:
                # Another process may have made it a moment ago, and it is not visible yet.
                if name == alias:
                    with suppress(_NotYetKnown):
                        self._seen(alias, LATE_SECONDS)
                        return self._by_any_key(tenant, act)
                raise KeyGone(f"Tenant {tenant!r} has no key that opens this.") from error
        raise AssertionError("names have no end")

    def _encrypt(self, key: str, secret: bytes, context: str) -> bytes:
        sealed = self._ask("encrypt", KeyId=key, Plaintext=secret, EncryptionContext=_bound(context))
        return bytes(sealed["CiphertextBlob"])

    def _make(self, tenant: str, alias: str) -> str:
        """The key behind the alias, whichever process made it. It is visible there when this returns."""
        tags = [{"TagKey": "millrace:tenant", "TagValue": tenant}]
        answer = self._ask("create_key", Description=f"Millrace: the key of tenant {tenant}", Tags=tags)
        made = str(answer["KeyMetadata"]["KeyId"])
        try:
            self._ask("create_alias", AliasName=alias, TargetKeyId=made)
        except _AliasTaken:
            # Perhaps by ourselves, if the answer to a first attempt was lost.
            if self._seen(alias) != made:
                self._end(made)
        return self._seen(alias)

    def _seen(self, alias: str, within: float = KNOWN_SECONDS) -> str:
        until = time.monotonic() + within
        while time.monotonic() < until:
            with suppress(_NoKey):
                return self._key(alias)
            time.sleep(PAUSE_SECONDS)
        raise _NotYetKnown(f"AWS KMS does not know {alias} yet.", remedy="Try again in some minutes.")

    def _move_on(self, tenant: str, alias: str) -> None:
        """Two processes that do this at once end with the same new key: a number can be taken once only."""
        keys = self._keys(alias)
        if len(keys) == 1:
            with suppress(_AliasTaken):
                self._ask("create_alias", AliasName=f"{alias}/1", TargetKeyId=keys[alias])
        newest = self._make(tenant, f"{alias}/{max(2, len(keys))}")
        self._ask("update_alias", AliasName=alias, TargetKeyId=newest)

    def _end(self, key: str) -> datetime:
        try:
            self._ask("disable_key", KeyId=key)
            end = self._ask("schedule_key_deletion", KeyId=key, PendingWindowInDays=DAYS_TO_DELETION)["DeletionDate"]
        except KeyGone:
            end = self._ask("describe_key", KeyId=key)["KeyMetadata"]["DeletionDate"]
        assert isinstance(end, datetime)
        return end

    def _keys(self, alias: str) -> dict[str, str]:
        """All keys of the tenant by their names, the alias itself first."""
        keys = {}
        with suppress(_NoKey):
            for name in _names(alias):
                keys[name] = self._key(name)
        return keys

    def _key(self, alias: str) -> str:
        return str(self._ask("describe_key", KeyId=alias)["KeyMetadata"]["KeyId"])

    def _alias(self, tenant: str) -> str:
        return f"alias/{self._prefix}{checked_name('tenant', tenant)}"

    def _ask(self, operation: str, **request: Any) -> dict[str, Any]:
        try:
            return dict(getattr(self._client, operation)(**request))
        except ClientError as refused:
            code, said = refused.response["Error"]["Code"], refused.response["Error"].get("Message", "")
            kind = _KINDS.get(code, Unavailable)
            if code == "KMSInvalidStateException" and "deletion" not in said:
                # For example because a key store is disconnected.
                kind = Unavailable
            remedy = "" if issubclass(kind, KeyGone) else "Try again, or see what the platform's role may do."
            raise kind(f"AWS KMS refuses {operation}: {code} {said}".strip(), remedy=remedy) from refused
        except BotoCoreError as failed:
            raise Unavailable(
                f"AWS KMS does not answer: {failed}",
                remedy="See MILLRACE_KMS__ENDPOINT, MILLRACE_KMS__REGION and the credentials, and try again.",
            ) from failed


def _names(alias: str) -> Iterator[str]:
    """The names that a tenant's keys may have. The first name without a key ends the list."""
    yield alias
    for number in count(1):
        yield f"{alias}/{number}"


def _bound(context: str) -> dict[str, str]:
    return {"millrace": context}
