"""What an app may use: the agreement's requests and limits in, complete ones out. Every app is bounded: what the agreement
leaves open the settings say."""

from millrace.model.agreement import Amounts, Resources
from millrace.model.errors import Invalid
from millrace.model.quantity import LARGEST, bytes_text, millis_text
from millrace.settings import KubernetesSettings


def bounded(tenant: str, resources: Resources, settings: KubernetesSettings) -> Resources:
    """Requests and limits, none of them missing, no request above its limit."""
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


def quantities(amounts: Amounts, times: int = 1) -> dict[str, str]:
    """As Kubernetes writes them."""
    cpu, memory = amounts.cpu_millis or 0, amounts.memory_bytes or 0
    return {"cpu": millis_text(min(cpu * times, LARGEST)), "memory": bytes_text(min(memory * times, LARGEST))}
