"""K8 for spans: BEGIN before its first import, END once and behind the END of everything in it, with the sum of its rows."""

from collections import defaultdict

from checker.dump import Document
from checker.findings import Findings
from checker.imported import Imported
from checker.model import Model
from checker.terminal import is_terminal, on_topic

ENDED, ABORTED, BEGUN = "ended", "aborted", "begun"
NAMES = ("read", "accepted", "rejected", "ignored")
NEVER = 1 << 62


class Story:
    """Where on the events topic each span and each import begins and ends; what is told again counts where it was first."""

    def __init__(self, model: Model) -> None:
        self.begun: dict[tuple[str, str], int] = {}
        self.over: dict[tuple[str, str], dict[str, tuple[int, Document]]] = defaultdict(dict)
        self.admitted: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        for place, event in enumerate(on_topic(model)):
            word, subject = event["type"].rsplit(".", 1)[-1], event["subject"]
            if ".span." in event["type"]:
                span = (str(event["source"]).rsplit("/", 1)[-1], subject)
                if word == BEGUN:
                    self.begun.setdefault(span, place)
                else:
                    self.over[span].setdefault(event["id"], (place, event))
            elif word == "admitted":
                self.admitted.setdefault(subject, place)
            elif is_terminal(event):
                self.ended.setdefault(subject, place)


def check_spans(model: Model, found: Findings) -> None:
    story = Story(model)
    for span in model.dump.spans:
        if span["state"] in (ENDED, ABORTED):
            name, key = f"span {span['tenant']}/{span['name']}", (span["tenant"], span["name"])
            told = list(story.over[key].values())
            words = [event["type"].rsplit(".", 1)[-1] for _, event in told]
            found.that(words == [span["state"]], f"{name} is {span['state']}, told were {words}")
            if words == [ENDED]:
                members = [imported for imported in model.imports.values() if _is_in(imported, span)]
                _ended_well(story, members, told[0], name, found)
                first = min((story.admitted.get(each.id, NEVER) for each in members), default=NEVER)
                found.that(story.begun.get(key, NEVER) < first, f"{name} did not begin before its first import")


def _ended_well(story: Story, members: list[Imported], told: tuple[int, Document], name: str, found: Findings) -> None:
    place, event = told
    bad = [imported.id for imported in members if imported.state != "completed"]
    found.that(not bad, f"{name} ended well with {bad[:3]} in it")
    late = [imported.id for imported in members if story.ended.get(imported.id, NEVER) > place]
    found.that(not late, f"{name} ended before {late[:3]}")
    rows = {word: sum(imported.counts.get(word, 0) for imported in members) for word in NAMES}
    found.that(event["data"]["rows"] == rows, f"{name} counts {event['data']['rows']}, its imports {rows}")
    found.that(event["data"]["imports"] == len(members), f"{name} counts {event['data']['imports']} imports")


def _is_in(imported: Imported, span: Document) -> bool:
    """A span holds the imports of the spans below it too."""
    inside = str(imported.document.get("span") or "")
    return imported.tenant == span["tenant"] and (inside == span["name"] or inside.startswith(span["name"] + "/"))
