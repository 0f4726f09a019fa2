"""What runs a client app: a CronJob for batches, a Deployment for streams, and what scales it."""

from typing import Any

from millrace.k8s.names import Names
from millrace.k8s.pods import pod_template
from millrace.model.agreement import Agreement, App, Schedule
from millrace.settings import KubernetesSettings

# Kubernetes looks every ten seconds; a run that it cannot start within so many of its time counts as missed.
SKIP_SECONDS = 60
KEPT_RUNS = 3


def cron_job(
    agreement: Agreement, schedule: Schedule, image: str, names: Names, settings: KubernetesSettings
) -> dict[str, Any]:
    replicas = _replicas(agreement)
    lost_machine = {"type": "DisruptionTarget", "status": "True"}
    spec = {
        "schedule": schedule.cron,
        "timeZone": schedule.time_zone,
        "concurrencyPolicy": "Forbid",
        **({"startingDeadlineSeconds": SKIP_SECONDS} if schedule.missed == "skip" else {}),
        **({"suspend": True} if replicas == 0 else {}),
        "successfulJobsHistoryLimit": KEPT_RUNS,
        "failedJobsHistoryLimit": KEPT_RUNS,
        "jobTemplate": {
            "metadata": {"labels": names.labels},
            "spec": {
                **_parallel(replicas),
                # A run that fails waits for its next time; one whose machine went away is started again.
                "backoffLimit": 0,
                "activeDeadlineSeconds": settings.app_longest_run_seconds,
                "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [lost_machine]}]},
                "template": pod_template(agreement, image, names, settings, restart="Never"),
            },
        },
    }
    return names.manifest("CronJob", names.workload, spec=spec)


def _parallel(replicas: int) -> dict[str, Any]:
    """Several at once know their share by JOB_COMPLETION_INDEX."""
    if replicas <= 1:
        return {}
    return {"completions": replicas, "parallelism": replicas, "completionMode": "Indexed"}


def deployment(agreement: Agreement, image: str, names: Names, settings: KubernetesSettings) -> dict[str, Any]:
    scales = agreement.app is not None and agreement.app.max_replicas is not None
    spec = {
        # Who scales it says how many; a number here would put them back at every apply.
        **({} if scales else {"replicas": _replicas(agreement)}),
        "selector": {"matchLabels": names.selector},
        # Never more than agreed, also while one version replaces another.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "revisionHistoryLimit": KEPT_RUNS,
        "template": pod_template(agreement, image, names, settings, restart="Always"),
    }
    return names.manifest("Deployment", names.workload, spec=spec)


def autoscaler(app: App, names: Names) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": app.target_cpu_percent or 80}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": names.workload},
        "minReplicas": app.min_replicas or 1,
        "maxReplicas": app.max_replicas,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }
    return names.manifest("HorizontalPodAutoscaler", names.workload, spec=spec)


def _replicas(agreement: Agreement) -> int:
    return 1 if agreement.app is None else agreement.app.replicas


def most_pods(agreement: Agreement) -> int:
    app = agreement.app
    if app is None:
        return 1
    return max(1, app.max_replicas if app.mode == "stream" and app.max_replicas is not None else app.replicas)
