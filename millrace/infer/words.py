"""Words that people write for true, false and nothing: the text of cells in, the words that are meant out."""

from collections.abc import Mapping

from millrace.infer.tolerance import tolerated

# Nobody writes these as a value. In columns that are text they mean nothing too.
SURELY_NULL = ("NULL", "null", "\\N", "#N/A", "#NV", "N/A", "n/a", "(null)", "<null>", "[null]")
# These may be values: Namibia, a dash, a name. They mean nothing where all other cells have a type.
PERHAPS_NULL = ("", "NA", "na", "n.a.", "N.A.", "k.A.", "None", "none", "nil", "-", "--", "–")
NULL_WORDS = (*SURELY_NULL, *PERHAPS_NULL)

# (true, false) in lower case. The usual words of the judge are not among them.
_PAIRS = (
    ("ja", "nein"), ("ja", "nee"), ("ja", "nej"), ("ja", "nei"), ("j", "n"), ("oui", "non"), ("o", "n"), ("vrai", "faux"),
    ("wahr", "falsch"), ("sí", "no"), ("si", "no"), ("sì", "no"), ("s", "n"), ("verdadero", "falso"), ("vero", "falso"),
    ("sim", "não"), ("sim", "nao"), ("verdadeiro", "falso"), ("tak", "nie"), ("ano", "ne"), ("áno", "nie"), ("da", "ne"),
    ("da", "nu"), ("да", "нет"), ("evet", "hayır"), ("kyllä", "ei"), ("igen", "nem"), ("on", "off"),
    ("はい", "いいえ"), ("是", "否"),
)  # fmt: skip
_CROSSES = ("x", "✓", "✔")
MOST_WORDS = 20


def boolean_words(counts: Mapping[str, int]) -> tuple[list[str], list[str]] | None:
    """The texts that mean true and false, in their most frequent spelling. `counts`: how many cells hold each text."""
    folded: dict[str, int] = {}
    spelling: dict[str, str] = {}
    for word, count in sorted(counts.items(), key=lambda entry: -entry[1]):
        plain = word.strip(" \t").lower()
        folded[plain] = folded.get(plain, 0) + count
        spelling.setdefault(plain, word.strip(" \t"))
    cells = sum(folded.values())
    for true, false in _PAIRS:
        if true in folded and false in folded and cells - folded[true] - folded[false] <= tolerated(cells):
            return [spelling[true]], [spelling[false]]
    return None


def cross(counts: Mapping[str, int], nulls: int) -> str | None:
    """The mark that stands in some cells while all others are empty, like an X on a form."""
    only = next(iter(counts), "").strip(" \t")
    return only if len(counts) == 1 and nulls and only.lower() in _CROSSES else None
