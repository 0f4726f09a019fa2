"""The program of tenants whose agreement has a schedule and names no program: the operator's settings say which."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millrace.k8s.pods import usual_image
from millrace.model.agreement import DEFAULT_PROGRAM, Agreement, parse_agreement
from millrace.model.declared_documents import document_of
from millrace.settings import KubernetesSettings, Settings


@dataclass(frozen=True, slots=True)
class DefaultApp:
    """`stages`: as seed 002 describes it, every upload is put into the program's `in` folder first."""

    k8s: KubernetesSettings
    stages: bool = False

    @staticmethod
    def of(settings: Settings) -> "DefaultApp":
        return DefaultApp(settings.k8s, settings.mysimbdp)

    @property
    def exists(self) -> bool:
        return self.stages or self.k8s.app_image is not None

    def complete(self, tenant: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """The agreement's document with the program that it has here."""
        if document.get("apps"):
            return {**document, "apps": [self._staging_first(app) for app in document["apps"]]}
        app = document.get("app")
        if app is None and document.get("schedule") is not None and self.exists:
            is_image = self.k8s.app_image is not None
            app = {"image": usual_image(tenant, self.k8s)} if is_image else {"command": [f"./{DEFAULT_PROGRAM}"]}
        return {**document, **({} if app is None else {"app": self._staging_first(app)})}

    def _staging_first(self, app: Mapping[str, Any]) -> dict[str, Any]:
        return {**app, **({"uploads_first": True} if self.stages else {})}

    def completed(self, agreement: Agreement) -> Agreement:
        document = document_of(agreement)
        whole = self.complete(agreement.tenant, document)
        return agreement if whole == document else parse_agreement(whole)[0]
