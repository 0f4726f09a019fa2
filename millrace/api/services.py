"""The services that routes use. `server.py` makes them; `deps.py` hands each route those it names."""

from dataclasses import dataclass

from millrace.api.health import Health
from millrace.api.jobs.erasing import Eraser
from millrace.api.jobs.replaying import Replays
from millrace.api.op_log import OpLog
from millrace.api.rows.senders import Senders
from millrace.api.sealing import Sealing
from millrace.api.uploads.sessions import Sessions
from millrace.api.watch import Watch
from millrace.auth.audit import Audit
from millrace.auth.quotas import Quotas
from millrace.auth.tokens import Tokens
from millrace.exchange.mailboxes import Exchange
from millrace.exchange.queues import Queues
from millrace.model.addresses import Networks
from millrace.settings import KubernetesSettings, QuerySettings
from millrace.sink.context import SinkContext
from millrace.store.engine import Store
from millrace.wire.client import Cluster


@dataclass(frozen=True, slots=True)
class Services:
    store: Store
    exchange: Exchange
    queues: Queues
    sink_context: SinkContext
    cluster: Cluster
    op_log: OpLog
    sealing: Sealing
    tokens: Tokens
    audit: Audit
    quotas: Quotas
    watch: Watch
    sessions: Sessions
    senders: Senders
    replays: Replays
    eraser: Eraser
    health: Health
    private_targets: Networks
    query: QuerySettings
    k8s: KubernetesSettings
