"""The pod that runs a client app: an agreement in, a pod template out, within Kubernetes' `restricted` pod security standard.

The app sees its own `in` and `out` and a /tmp of its own; all else is read-only, and no token of the cluster is there."""

import re
from collections.abc import Sequence
from typing import Any

from millrace.k8s.names import TENANT_ANNOTATION, Names
from millrace.model.agreement import BATCH, THE_APP, Agreement, Amounts, App, Resources
from millrace.model.errors import Invalid
from millrace.model.kube_names import dns_name
from millrace.model.quantity import LARGEST, bytes_text, millis_text
from millrace.settings import KubernetesSettings
from millrace.staging.users import user_of

# Which replica of a batch it is; Kubernetes sets it for Jobs with several.
INDEX = "JOB_COMPLETION_INDEX"
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._:/@-]{0,511}", re.ASCII)


def image_of(agreement: Agreement, settings: KubernetesSettings) -> str | None:
    """The agreement's own, else the one that the settings name for every tenant; none for an app that is a local command."""
    app = agreement.app
    if app is not None and (app.image is not None or app.command):
        return app.image
    return usual_image(agreement.tenant, settings)


def usual_image(tenant: str, settings: KubernetesSettings) -> str | None:
    """For a tenant that handed in an image and did not name it."""
    return None if settings.app_image is None else settings.app_image.replace("{tenant}", dns_name(tenant))


def pull_secrets(settings: KubernetesSettings) -> dict[str, Any]:
    secrets = [{"name": secret} for secret in settings.image_pull_secrets]
    return {"imagePullSecrets": secrets} if secrets else {}


def pod_template(
    agreement: Agreement, image: str, names: Names, settings: KubernetesSettings, restart: str
) -> dict[str, Any]:
    user = user_of(agreement.tenant) if settings.user_id is None else settings.user_id
    spec = {
        "serviceAccountName": names.account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": restart,
        **({"runtimeClassName": settings.runtime_class} if settings.runtime_class else {}),
        **pull_secrets(settings),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": settings.group_id,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(agreement, image, names, settings)],
        "volumes": [
            {"name": "staging", "persistentVolumeClaim": {"claimName": names.claim}},
            {"name": "tmp", "emptyDir": {"sizeLimit": bytes_text(settings.app_scratch_mb << 20)}},
        ],
    }
    return {"metadata": {"labels": names.labels, "annotations": {TENANT_ANNOTATION: names.tenant}}, "spec": spec}


def _container(agreement: Agreement, image: str, names: Names, settings: KubernetesSettings) -> dict[str, Any]:
    app = agreement.app or App()
    resources = bounded(agreement.tenant, agreement.resources, settings)
    scratch = {"ephemeral-storage": bytes_text(settings.app_scratch_mb << 20)}
    return {
        "name": "app",
        "image": _checked_image(agreement.tenant, image),
        **({"command": [_literal(agreement.tenant, word) for word in app.command]} if app.command else {}),
        "env": _environment(agreement.tenant, app, settings),
        "resources": {
            "requests": {**quantities(resources.requests), **scratch},
            "limits": {**quantities(resources.limits), **scratch},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            # Apart, so that the app can put nothing in the place of either folder.
            *(
                {"name": "staging", "mountPath": f"{settings.source_path}/{agreement.tenant}/{name}", **place}
                for name, place in _places(app, names).items()
            ),
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _places(app: App, names: Names) -> dict[str, dict[str, str]]:
    """Where `in` and `out` are in the volume. Each replica of a batch has an `in` of its own, named by its index."""
    below = "" if names.app is None or app.name == THE_APP else f"apps/{app.name}/{names.tenant}/"
    inbox = {"subPath": f"{below}in"}
    if divides(app):
        inbox = {"subPathExpr": f"{below}replicas/$({INDEX})"}
    return {"in": inbox, "out": {"subPath": f"{below}out"}}


def divides(app: App) -> bool:
    """Whether its replicas divide the files of `in`."""
    return app.mode == BATCH and app.replicas > 1


def _environment(tenant: str, app: App, settings: KubernetesSettings) -> list[dict[str, Any]]:
    # A home that can be written to: the root is read-only, and the user is not known to the image.
    given = {"HOME": "/tmp", **app.env, "CLIENT_ID": tenant, "SOURCE_PATH": settings.source_path}
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    return [
        # A path of a volume can name only variables that are declared.
        *([{"name": INDEX, "valueFrom": index}] if divides(app) else []),
        *(
            {"name": name, "value": _literal(tenant, value)}
            for name, value in given.items()
            if name != INDEX or not divides(app)
        ),
    ]


def _literal(tenant: str, words: str) -> str:
    """Kubernetes expands $(NAME) in commands and values; an app gets what its agreement says, here as on a laptop."""
    if "\0" in words or any("\ud800" <= letter <= "\udfff" for letter in words):
        raise Invalid(
            f"A command or variable of {tenant!r}'s app is no text.", remedy="Write it without NUL, in Unicode."
        )
    return words.replace("$", "$$")


def _checked_image(tenant: str, image: str) -> str:
    if not _IMAGE.fullmatch(image):
        raise Invalid(
            f"app.image of {tenant!r} is {image!r:.80}, which names no image.",
            remedy="Write registry/name:tag or @digest.",
        )
    return image


def bounded(tenant: str, resources: Resources, settings: KubernetesSettings) -> Resources:
    """Requests and limits. Every app is bounded: what the agreement leaves open the settings say."""
    asked, allowed = resources.requests, resources.limits
    cpu = _pair(
        tenant, "cpu", asked.cpu_millis, allowed.cpu_millis, settings.app_cpu_millis, settings.app_cpu_limit_millis
    )
    memory = _pair(
        tenant, "memory", asked.memory_bytes, allowed.memory_bytes, settings.app_memory_mb << 20,
        settings.app_memory_limit_mb << 20,
    )  # fmt: skip
    return Resources(Amounts(cpu[0], memory[0]), Amounts(cpu[1], memory[1]))


def _pair(
    tenant: str, what: str, asked: int | None, allowed: int | None, usual: int, usual_limit: int
) -> tuple[int, int]:
    if allowed == 0:
        raise Invalid(
            f"resources.limits.{what} of {tenant!r} is 0, which Kubernetes takes for no limit at all.",
            remedy="Give the most that the app may use.",
        )
    limit = max(usual_limit, asked or 0) if allowed is None else allowed
    request = min(usual, limit) if asked is None else asked
    if request > limit:
        raise Invalid(
            f"resources.requests.{what} of {tenant!r} is above its limit.",
            remedy="Lower the request or raise the limit.",
        )
    return request, limit


def quantities(amounts: Amounts) -> dict[str, str]:
    """As Kubernetes writes them."""
    return total([(amounts, 1)])


def total(each: Sequence[tuple[Amounts, int]]) -> dict[str, str]:
    """Of all amounts, each so many times."""
    cpu = sum((amounts.cpu_millis or 0) * times for amounts, times in each)
    memory = sum((amounts.memory_bytes or 0) * times for amounts, times in each)
    return {"cpu": millis_text(min(cpu, LARGEST)), "memory": bytes_text(min(memory, LARGEST))}
