"""An agreement and a run in, the processes of its program out."""

from millrace.exchange.app_folders import Staging
from millrace.manage.openrun import OpenRun
from millrace.manage.running import AppProcess, AppReplicas
from millrace.manage.tools import Tools
from millrace.model.agreement import BATCH, Agreement
from millrace.seal.cipher import Seal
from millrace.staging.dividing import divide, return_claims
from millrace.staging.users import owner_of


def launch(tools: Tools, staging: Staging, agreement: Agreement, run: OpenRun, seal: Seal | None) -> AppReplicas:
    """Replicas of a batch divide the files in `in`. Of a program that is not confined one runs: it sees `in` itself."""
    app, confinement = agreement.app, tools.confinement
    assert app is not None
    count = app.replicas if app.mode == BATCH and confinement.own_view else 1
    staging.make(owner_of(staging.tenant))
    return_claims(staging)
    if count > 1:
        divide(staging, count, owner_of(staging.tenant))
    processes: list[AppProcess] = []
    try:
        for number in range(max(count, 1)):
            replica = number if count > 1 else None
            limits = tools.limiter.limits(staging.slug, agreement.resources.limits, replica)
            if number == 0:
                run.change(confinement={**confinement.as_json(), "limits": limits.means})
            order = confinement.order(staging, app.command, app.env, limits, replica)
            processes.append(AppProcess(run.folder, order, seal, number))
    except BaseException:
        for process in processes:
            process.kill()
        raise
    return AppReplicas(processes)
