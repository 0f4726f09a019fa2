"""What a change of a table would do in its connectors: two definitions in, lines for people out."""

from collections.abc import Iterator

from millrace.model.sinks import DELTA_KIND, SinkTarget
from millrace.model.table import Definition
from millrace.sink.registry import plan_of

MOST_SHOWN = 300


def sink_plans(before: Definition | None, after: Definition) -> list[str]:
    """Each line begins with the sink's name. Some kinds cannot list statements; they are named without any."""
    foreign = [target for target in after.table.targets if target.kind != DELTA_KIND]
    gone = [f"{target.name}: drained, then left as it is" for target in _gone(before, after)]
    return [*(line for target in foreign for line in _of(target, before, after)), *gone]


def _of(target: SinkTarget, before: Definition | None, after: Definition) -> Iterator[str]:
    begins = before is None or before.generation < after.generation
    is_new = begins or before is None or all(one.name != target.name for one in before.table.targets)
    plan = plan_of(target.kind)
    if plan is None:
        if is_new:
            yield f"{target.name}: prepare the place for the table's rows"
    else:
        for statement in plan(None if is_new else before, after):
            yield f"{target.name}: {statement[:MOST_SHOWN]}"
    if is_new and not begins:
        yield f"{target.name}: filled with the rows that are there, from the log or from Delta"


def _gone(before: Definition | None, after: Definition) -> list[SinkTarget]:
    kept = {target.name for target in after.table.targets}
    former = before.table.targets if before is not None else ()
    return [target for target in former if target.kind != DELTA_KIND and target.name not in kept]
