"""Child processes that tests start as the platform does."""

from millrace.embed.process import Child
from tests.support.waiting import wait_until


def wait_ready(child: Child, seconds: float) -> None:
    """Returns when it answers; fails at once when it has ended."""
    wait_until(lambda: child.probe() or not child.running, seconds, f"{child.name} is ready")
    assert child.running, f"{child.name} ended with code {child.exit_code}; its log says why: {child.launch.log}"
