"""How many imports of a tenant may be open. This quota must be exact, so the log decides it."""

from dataclasses import replace

from millrace.control.state import State
from millrace.model.errors import Exceeded


def open_imports_allowed(agreement: dict[str, object]) -> int | None:
    quotas = agreement.get("quotas")
    allowed = quotas.get("open_imports") if isinstance(quotas, dict) else None
    return None if allowed is None else int(allowed)


def one_more_import(state: State) -> State:
    """The state with one more open import. Refused if the tenant has as many as were agreed."""
    allowed = None if state.tenant is None else open_imports_allowed(state.tenant.agreement)
    if allowed is None or state.open_imports is None or state.tenant is None:
        return state
    if state.open_imports >= allowed:
        raise Exceeded(
            f"{state.tenant.name} has {state.open_imports:,} open imports; {allowed:,} were agreed.",
            remedy="Wait until one has ended.",
            facts={"quota": "open_imports", "limit": str(allowed), "used": str(state.open_imports)},
        )
    return replace(state, open_imports=state.open_imports + 1)
