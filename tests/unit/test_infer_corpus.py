"""Files as people send them: what `infer` proposes for each, what it says about it, and what the judge then counts."""

from collections import Counter

import pytest
import yaml

from millrace.cli.inferring import _remarks, _written
from millrace.declare.table import parse_table
from millrace.formats.cut import UploadOptions
from millrace.infer.proposing import propose
from millrace.infer.trial import Bounds, try_file
from millrace.model.table import define
from tests.support.corpus import CorpusFile, corpus, summary

FEWEST = 60


@pytest.mark.parametrize("file", corpus(), ids=lambda file: file.path.name)
def test_a_file_gets_the_declaration_and_the_counts_that_a_person_expects(file: CorpusFile) -> None:
    proposal = propose(file.path)
    assert summary(proposal.document, file.declaration) == file.declaration
    said = "\n".join(_remarks(proposal))
    assert [words for words in file.expected.get("says", []) if words not in said] == [], said
    text = _written(proposal, file.path, as_json=False)
    document = yaml.safe_load(text)
    assert document == proposal.document
    definition = define("corpus", parse_table(document), 1)
    tally = try_file([file.path.read_bytes()], definition, UploadOptions(), Bounds(), advising=False).tally
    counted = {
        "accepted": tally.read - tally.failed,
        "rejected": tally.failed,
        "repeated_headers": tally.repeated_headers,
    }
    assert counted == file.counts


def test_the_corpus_is_whole() -> None:
    """No file without its expectation, and no expectation without its file."""
    found = corpus()
    assert len(found) >= FEWEST
    assert all(file.path.is_file() and file.expected["about"] for file in found)
    names = Counter(path.name.removesuffix(".yaml") for path in found[0].path.parent.iterdir())
    assert set(names.values()) == {2}
