"""A table's revisions: which changes of its declaration are allowed, and what they mean for stored rows.

Two definitions in, changes out; or a refusal (Clash) that names the field and the rule. Code `incompatible`: the change
breaks the declared `compatibility`. Code `needs_generation`: no sink can change stored rows like this; a new generation
begins without rows."""

from collections.abc import Callable, Iterator, Sequence

from millrace.model.changes import AddColumn, Change, DropColumn, RenameColumn, WidenColumn
from millrace.model.columns import Column
from millrace.model.defaults import refuse_strange_defaults
from millrace.model.errors import Clash, Corrupt
from millrace.model.fields import Field, field_of
from millrace.model.resolution import AVRO, SINKS, Mismatch, between, matched, problems
from millrace.model.stored_types import DECIMAL
from millrace.model.table import Definition, TableDeclaration, define

NEW_GENERATION = (
    "Ask for a new generation (apply --new-generation: the table begins empty), or declare a table of another name."
)
# For these pairs the hash of a key does not change when its column is widened.
_WIDER_KEYS = (("int", "long"), ("float", "double"))


def changes(before: Definition, after: Definition) -> tuple[Change, ...]:
    """The changes, ordered so that two columns never share a name: drops, renames, other types, additions."""
    old = {column.name: column for column in before.columns}
    pairs = _pairs(before, after)
    kept = [(old[pairs[column.name]], column) for column in after.columns if column.name in pairs]
    return (
        *(DropColumn(name) for name in old if name not in pairs.values()),
        *(RenameColumn(was.name, column.name) for was, column in kept if was.name != column.name),
        *(
            WidenColumn(column.name, was, column)
            for was, column in kept
            if field_of(was).shape() != field_of(column).shape()
        ),
        *(AddColumn(column) for column in after.columns if column.name not in pairs),
    )


def path(definitions: Callable[[str], Definition], before: Definition, after: Definition) -> tuple[Change, ...]:
    """The changes of all revisions from `before` to `after`, in order. A column that is dropped and added again is new."""
    steps: list[tuple[Change, ...]] = []
    while after.fingerprint != before.fingerprint:
        if after.previous is None or after.revision <= before.revision:
            raise Corrupt(
                f"Revision {before.revision} (generation {before.generation}) of {before.tenant}/{before.table.name} "
                f"is no forerunner of revision {after.revision} (generation {after.generation})."
            )
        previous = definitions(after.previous)
        steps.append(changes(previous, after))
        after = previous
    return tuple(change for step in reversed(steps) for change in step)


def check(before: Definition, history: Sequence[Definition], after: TableDeclaration) -> tuple[Change, ...]:
    """The changes, if the compatibility that `after` declares allows them. `history` has any order."""
    candidate = define(before.tenant, after, before.revision + 1, before.generation, before.floor, before.fingerprint)
    refuse_strange_defaults(candidate.columns)
    _refuse_shared_aliases(candidate)
    _refuse_without_generation(before, candidate)
    policy = after.compatibility
    others = [old for old in history if old.generation == before.generation and old.fingerprint != before.fingerprint]
    earlier = sorted(others, key=lambda old: -old.revision) if policy.endswith("_transitive") else []
    for known in (before, *earlier):
        found = list(_incompatibilities(policy, known, candidate))
        if found:
            at = "" if known is before else f"revision {known.revision}: "
            raise Clash(
                "; ".join(f"{policy}: {at}{text}" for text, _ in found) + ".", remedy=found[0][1], code="incompatible"
            )
    return changes(before, candidate)


def _fields(definition: Definition) -> list[Field]:
    return [field_of(column) for column in definition.columns]


def _pairs(before: Definition, after: Definition) -> dict[str, str]:
    """For each column that is not new: its name, and the name that it had."""
    return {name: field.name for name, field in matched(_fields(before), _fields(after)).items()}


def _refuse_shared_aliases(after: Definition) -> None:
    claims: dict[str, str] = {}
    for column in after.columns:
        for alias in column.aliases:
            other = claims.setdefault(alias, column.name)
            if other != column.name:
                raise Clash(
                    f"The columns {other!r} and {column.name!r} both have the alias {alias!r}.",
                    remedy="A former name can belong to one column only.",
                    code="incompatible",
                )


def _refuse_without_generation(before: Definition, after: Definition) -> None:
    found = [*_key_changes(before, after), *_lost_values(before, after)]
    if found:
        raise Clash("; ".join(found) + ".", remedy=NEW_GENERATION, code="needs_generation")


def _lost_values(before: Definition, after: Definition) -> Iterator[str]:
    for problem in problems(_fields(before), _fields(after), SINKS):
        yield (
            f"Column {problem.where!r} would change from {problem.written} to {problem.read}, "
            "which cannot hold all the values it may have"
        )


def _key_changes(before: Definition, after: Definition) -> Iterator[str]:
    pairs = _pairs(before, after)
    was, becomes = before.table.primary_key, after.table.primary_key
    if tuple(pairs.get(name) for name in becomes) != was:
        yield f"The primary key would change from ({', '.join(was)}) to ({', '.join(becomes)})"
        return
    old = {column.name: column for column in before.columns}
    for column in after.columns:
        if column.name in becomes:
            yield from _key_column_changes(old[pairs[column.name]], column)


def _key_column_changes(before: Column, after: Column) -> Iterator[str]:
    was, becomes = field_of(before), field_of(after)
    change = f"The key column {after.name!r} would change from {was.spelled()} to {becomes.spelled()}"
    if after.nullable and not before.nullable:
        yield f"{change}: a key cannot be null"
    elif not _finds_its_rows(before, after) and not any(between(was, becomes, SINKS, after.name)):
        yield f"{change}: its rows could not be found again"


def _finds_its_rows(before: Column, after: Column) -> bool:
    same = before.stored == after.stored or before.stored.kind == DECIMAL
    return same or (before.kind, after.kind) in _WIDER_KEYS


def _incompatibilities(policy: str, known: Definition, after: Definition) -> Iterator[tuple[str, str]]:
    """Each breach of the policy, and its remedy."""
    if policy.startswith(("backward", "full")):
        for problem in problems(_fields(known), _fields(after), AVRO):
            yield _BACKWARD[problem.kind](problem)
    if policy.startswith(("forward", "full")):
        for problem in problems(_fields(after), _fields(known), AVRO):
            yield _FORWARD[problem.kind](problem)


_BACKWARD: dict[str, Callable[[Mismatch], tuple[str, str]]] = {
    "missing": lambda it: (
        f"the added column {it.where!r} has no default",
        'Give it a "default", or declare it ["null", …]; a renamed column lists its former names in "aliases".',
    ),
    "null": lambda it: (
        f"column {it.where!r} would change from {it.written} to {it.read}, and rows already there may hold null",
        'Keep it ["null", …], or declare compatibility: forward or none.',
    ),
    "type": lambda it: (
        f"column {it.where!r} would change from {it.written} to {it.read}, which Avro cannot read as such",
        "Keep the type, or declare compatibility: none.",
    ),
}
_FORWARD: dict[str, Callable[[Mismatch], tuple[str, str]]] = {
    "missing": lambda it: (
        f"the dropped column {it.where!r} has no default for readers that still expect it",
        'Keep it, or first give it a "default" or declare it ["null", …], then drop it.',
    ),
    "null": lambda it: (
        f"column {it.where!r} would change from {it.read} to {it.written}, and readers of before take no null",
        "Keep it required, or declare compatibility: backward or none.",
    ),
    "type": lambda it: (
        f"column {it.where!r} would change from {it.read} to {it.written}, which readers of before cannot take",
        "Keep the type, or declare compatibility: backward or none.",
    ),
}
