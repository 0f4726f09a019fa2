"""Reads secrets by reference, for the tenant whose declaration names them or for the operator. Whatever names a secret goes
through here: a tenant gets its own secrets and those that the operator shares with it. What was read is neither kept nor
logged."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from millrace.credentials.kube_secrets import read_kube_secret
from millrace.credentials.vault import session_of
from millrace.model.errors import Invalid, Missing
from millrace.model.kube_names import tenant_namespace
from millrace.model.secret_references import ENV_PREFIX, SecretReference, own_forms, parse_reference
from millrace.settings import KubernetesSettings, SecretSettings, Settings

FOLDER_VARIABLE = "MILLRACE_SECRET_FOLDER"
EVERY_TENANT = "*"
_OPERATORS_SCHEMES = ("env", "file")


class ForeignSecret(Invalid):
    """A tenant named a secret that is neither its own nor shared with it."""

    def __init__(self, tenant: str, reference: SecretReference) -> None:
        super().__init__(
            f"The secret {reference.text:.100} is not one of tenant {tenant!r}.",
            remedy=f"Use one of its own: {own_forms(tenant)}; or have the operator share it (MILLRACE_SECRETS__SHARED).",
            code="foreign_secret",
        )
        self.tenant = tenant
        self.reference = reference.text[:100]


@dataclass(frozen=True, slots=True)
class Secrets:
    """`operators` are the references of the platform's own settings: no tenant's, whatever they are called."""

    settings: SecretSettings = field(default_factory=SecretSettings)
    namespace_prefix: str = KubernetesSettings().namespace_prefix
    operators: frozenset[str] = frozenset()

    @staticmethod
    def of(settings: Settings) -> "Secrets":
        lake, vault = settings.lake, settings.secrets.vault
        own = (lake.access_key, lake.secret_key, lake.session_token, lake.token)
        login = (vault.token, vault.secret_id) if vault else ()
        return Secrets(
            settings.secrets, settings.k8s.namespace_prefix, frozenset(one for one in (*own, *login) if one is not None)
        )

    def check(self, tenant: str, text: str) -> SecretReference:
        """The reference, if the tenant may use it. Looks at names alone: it cannot tell which secrets exist."""
        reference = parse_reference(text)
        shared_with = self.settings.shared.get(reference.text, ())
        is_own = reference.belongs_to(tenant) and reference.text not in self.operators
        if not is_own and tenant not in shared_with and EVERY_TENANT not in shared_with:
            raise ForeignSecret(tenant, reference)
        return reference

    def read(self, tenant: str, text: str) -> str:
        reference = self.check(tenant, text)
        match reference.scheme:
            case "env":
                return _from_environment(reference.name)
            case "file":
                return _from_file(reference.parts)
            case "k8s":
                return self._from_kubernetes(tenant, reference)
        return self._from_vault(tenant, reference)

    def read_operators(self, text: str) -> str:
        """A secret that the operator's settings name."""
        reference = parse_reference(text)
        if reference.scheme not in _OPERATORS_SCHEMES:
            raise Invalid(
                f"The platform's own settings cannot use {reference.text:.100}.", remedy="Write env:NAME or file:NAME."
            )
        return _from_environment(reference.name) if reference.scheme == "env" else _from_file(reference.parts)

    def _from_kubernetes(self, tenant: str, reference: SecretReference) -> str:
        parts = reference.parts
        if not reference.is_absolute:
            parts = [tenant_namespace(self.namespace_prefix, tenant), *parts]
        return read_kube_secret(*parts)

    def _from_vault(self, tenant: str, reference: SecretReference) -> str:
        vault = self.settings.vault
        if vault is None:
            raise Missing(
                "This platform has no Vault.",
                remedy="Have the operator set MILLRACE_SECRETS__VAULT__ADDRESS and a way to log in.",
                code="no_secret",
            )
        path = "/".join(reference.parts)
        if not reference.is_absolute:
            path = f"{vault.prefix.replace('{tenant}', tenant)}/{path}"
        return session_of(vault).read(path, reference.name.rpartition("#")[2], self.read_operators)


def _from_environment(name: str) -> str:
    if not name.startswith(ENV_PREFIX) or name == FOLDER_VARIABLE:
        raise Invalid(f"The variable {name:.60} is not for secrets.", remedy=f"Name variables {ENV_PREFIX}….")
    value = os.environ.get(name)
    if value is None:
        raise Missing(
            f"The environment has no {name:.100}.", remedy="Set it where the platform is started.", code="no_secret"
        )
    return value


def _from_file(parts: list[str]) -> str:
    """Links may lead to a file below the same folder, as they do in volumes of Kubernetes, and no further: the folder of a
    tenant is the one of that name, not one that a link calls so."""
    folder = os.environ.get(FOLDER_VARIABLE)
    # An empty name would be the folder in which the process was started.
    if not folder:
        raise Missing("There is no folder of secrets.", remedy=f"Set {FOLDER_VARIABLE}.", code="no_secret")
    root = Path(folder).resolve()
    above = root if len(parts) == 1 else (root / parts[0]).resolve()
    path = root.joinpath(*parts).resolve()
    is_named_so = above == root or (above.is_relative_to(root) and above.name == parts[0])
    if not is_named_so or not path.is_relative_to(above) or not path.is_file():
        raise Missing(
            f"There is no secret {'/'.join(parts):.100}.",
            remedy=f"Put it below the folder that {FOLDER_VARIABLE} names.",
            code="no_secret",
        )
    try:
        return path.read_text("utf-8").strip()
    except UnicodeDecodeError as error:
        raise Invalid(
            f"The secret {'/'.join(parts):.100} is no text: byte {error.start + 1} is not UTF-8.",
            remedy="Store it as UTF-8 text; write binary data as base64 if its reader takes that.",
            code="bad_secret",
        ) from None
    except OSError as error:
        raise Missing(
            f"The secret {'/'.join(parts):.100} cannot be read: {error.strerror}.",
            remedy="Let the platform's user read its file.",
            code="no_secret",
        ) from None
