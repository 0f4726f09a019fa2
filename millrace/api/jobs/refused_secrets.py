"""The audit entry of a tenant's sink that stopped because its settings name somebody else's secret.

Declarations with such a name are refused, and the request has its entry. A secret that was shared may be withdrawn later:
then a worker is the first to refuse it, and nobody asked for anything."""

import time
from http import HTTPStatus

from millrace.auth.audit import FOREIGN_SECRET, MOST_SUBJECT, Audit
from millrace.credentials.secrets import ForeignSecret
from millrace.model.names import new_id
from millrace.model.queues import QueueRecord
from millrace.sink.context import SinkContext
from millrace.sink.registry import refuse_foreign_in

BY_THE_PLATFORM = "platform"


def note_foreign_secret(audit: Audit, context: SinkContext, record: QueueRecord) -> None:
    """Looks at the names in the settings of a sink that was parked, whatever stopped it."""
    key = record.key
    if record.member is None:
        return
    try:
        refuse_foreign_in([record.member.target], context.for_tenant(key.tenant))
    except ForeignSecret as foreign:
        subject = f"{key.tenant}/{key.table}/{key.target} {foreign.reference}"[:MOST_SUBJECT]
        who = {"request_id": new_id("req"), "who": BY_THE_PLATFORM, "role": "", "from_address": ""}
        what = {"action": FOREIGN_SECRET, "subject": subject, "status": HTTPStatus.FORBIDDEN, "tenant": key.tenant}
        audit.note({"at_us": time.time_ns() // 1000, **who, **what})
