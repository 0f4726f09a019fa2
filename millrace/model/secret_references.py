"""References to secrets, and whose they are. A declaration holds a reference; the secret is read where it is used.

    env:MILLRACE_SECRET_<TENANT>_NAME    a variable; '_' in the tenant's name is written twice
    file:<tenant>/NAME                   a file below the folder of secrets
    k8s:SECRET/KEY                       a Secret in the tenant's own namespace
    vault:PATH#FIELD                     below the tenant's path of a Vault

Two longer forms name a place that is no tenant's: k8s:NAMESPACE/SECRET/KEY and vault:/PATH#FIELD."""

import re
from dataclasses import dataclass

from millrace.model.errors import Invalid

ENV_PREFIX = "MILLRACE_SECRET_"
REMEDY = "Write env:NAME, file:TENANT/NAME, k8s:SECRET/KEY or vault:PATH#FIELD."
_PART = r"(?!\.+(?:/|#|$))[A-Za-z0-9._-]+"
_FORMS = {
    "env": re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII),
    "file": re.compile(rf"{_PART}(/{_PART})*", re.ASCII),
    "k8s": re.compile(rf"{_PART}/{_PART}(/{_PART})?", re.ASCII),
    "vault": re.compile(rf"/?{_PART}(/{_PART})*#[A-Za-z0-9._-]+", re.ASCII),
}
SCHEMES = tuple(_FORMS)
_NAMESPACED_PARTS = 3
# Names whose capitals are no other tenant's. Others cannot be told apart in a variable.
_FOLDABLE = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
# The tenant ends at the first run of '_' of odd length: its last one divides, each pair before it is one '_' of the name.
_OWNED = re.compile(r"([A-Z][A-Z0-9]*(?:(?:__)+[A-Z0-9]+)*(?:__)*)_[A-Za-z0-9]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class SecretReference:
    scheme: str
    name: str

    @property
    def text(self) -> str:
        return f"{self.scheme}:{self.name}"

    @property
    def parts(self) -> list[str]:
        return self.name.partition("#")[0].strip("/").split("/")

    @property
    def is_absolute(self) -> bool:
        """Whether it names a place by itself, rather than one below the tenant's."""
        if self.scheme == "k8s":
            return len(self.parts) == _NAMESPACED_PARTS
        return self.scheme != "vault" or self.name.startswith("/")

    def belongs_to(self, tenant: str) -> bool:
        match self.scheme:
            case "env":
                return _FOLDABLE.fullmatch(tenant) is not None and _owner(self.name) == tenant
            case "file":
                return len(self.parts) > 1 and self.parts[0] == tenant
        return not self.is_absolute


def parse_reference(text: str) -> SecretReference:
    """A scheme and a plain name: nothing that leads out of where secrets are. The text is not shown: it may be the secret."""
    scheme, _, name = text.partition(":")
    form = _FORMS.get(scheme)
    if form is None or not form.fullmatch(name):
        raise Invalid("This is not a reference to a secret.", remedy=REMEDY, code="bad_secret")
    return SecretReference(scheme, name)


def variable_prefix(tenant: str) -> str | None:
    """How the variables of the tenant's secrets begin; None for a tenant that can have none."""
    return f"{ENV_PREFIX}{tenant.upper().replace('_', '__')}_" if _FOLDABLE.fullmatch(tenant) else None


def own_forms(tenant: str) -> str:
    """The references that the tenant may use, for people."""
    prefix = variable_prefix(tenant)
    variable = f"env:{prefix}…, " if prefix else ""
    return f"{variable}file:{tenant}/…, k8s:SECRET/KEY or vault:PATH#FIELD"


def _owner(variable: str) -> str | None:
    """The tenant that a variable belongs to."""
    found = _OWNED.fullmatch(variable.removeprefix(ENV_PREFIX)) if variable.startswith(ENV_PREFIX) else None
    return None if found is None else found[1].lower().replace("__", "_")
