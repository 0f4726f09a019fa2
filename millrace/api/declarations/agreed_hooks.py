"""The notification targets of an agreement in, webhooks of its tenant out: made, changed and removed with the agreement.

They are called `agreed-…`; their secret is learnt by rotating it."""

from millrace.model.agreement import Agreement
from millrace.notify.subscription import IN_ORDER, checked_types
from millrace.notify.subscriptions import NewSubscription, Subscriptions
from millrace.outbound.addresses import parse_target
from millrace.store.engine import ControlStore

PREFIX = "agreed-"


def refuse_strange_targets(agreement: Agreement) -> None:
    """Refuses an address or an event type that can never work, before anything is declared."""
    for wanted in _wanted(agreement):
        parse_target(wanted.url)
        checked_types(wanted.types)


def keep_agreed(store: ControlStore, agreement: Agreement) -> None:
    """A webhook that is right already stays untouched, with the events that wait for it."""
    kept, tenant = Subscriptions(store), agreement.tenant
    wanted = {one.name: one for one in _wanted(agreement)}
    known = {one["name"]: one for one in kept.documents(tenant) if one["name"].startswith(PREFIX)}
    for name in known.keys() - wanted.keys():
        kept.remove(tenant, name)
    for name, one in wanted.items():
        if name not in known:
            kept.add(tenant, one)
        elif (known[name]["url"], known[name]["types"]) != (one.url, checked_types(one.types)):
            kept.change(tenant, name, {"url": one.url, "types": one.types})


def _wanted(agreement: Agreement) -> list[NewSubscription]:
    return [
        NewSubscription(f"{PREFIX}{given.get('name', number)}"[:63], given["url"], list(given["events"]), IN_ORDER)
        for number, given in enumerate(agreement.notifications, 1)
    ]
