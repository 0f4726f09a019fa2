"""The pod that runs a client app: an agreement in, a pod template out, within Kubernetes' `restricted` pod security standard.

The app sees its own `in` and `out` and a /tmp of its own; all else is read-only, and no token of the cluster is there."""

import re
from typing import Any

from millrace.k8s.amounts import bounded, quantities
from millrace.k8s.names import TENANT_ANNOTATION, Names, dns_name
from millrace.model.agreement import Agreement, App
from millrace.model.errors import Invalid
from millrace.model.quantity import bytes_text
from millrace.settings import KubernetesSettings

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
    spec = {
        "serviceAccountName": names.account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": restart,
        **({"runtimeClassName": settings.runtime_class} if settings.runtime_class else {}),
        **pull_secrets(settings),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": settings.user_id,
            "runAsGroup": settings.user_id,
            "fsGroup": settings.user_id,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(agreement, image, settings)],
        "volumes": [
            {"name": "staging", "persistentVolumeClaim": {"claimName": names.claim}},
            {"name": "tmp", "emptyDir": {"sizeLimit": bytes_text(settings.app_scratch_mb << 20)}},
        ],
    }
    return {"metadata": {"labels": names.labels, "annotations": {TENANT_ANNOTATION: names.tenant}}, "spec": spec}


def _container(agreement: Agreement, image: str, settings: KubernetesSettings) -> dict[str, Any]:
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
            # As a whole, so that a file can be renamed from `in` to `out`; the platform keeps nothing else there.
            {"name": "staging", "mountPath": f"{settings.source_path}/{agreement.tenant}"},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _environment(tenant: str, app: App, settings: KubernetesSettings) -> list[dict[str, str]]:
    # A home that can be written to: the root is read-only, and the user is not known to the image.
    given = {"HOME": "/tmp", **app.env, "CLIENT_ID": tenant, "SOURCE_PATH": settings.source_path}
    return [{"name": name, "value": _literal(tenant, value)} for name, value in given.items()]


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
