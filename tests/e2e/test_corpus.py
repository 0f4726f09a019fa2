"""All files of the corpus are sent to one platform at once, each into the table that `infer` proposes for it."""

from concurrent.futures import ThreadPoolExecutor

from millrace.infer.proposing import propose
from tests.support.corpus import CorpusFile, corpus
from tests.support.platform import RunningPlatform

TENANT = "corpus"
AT_ONCE = 8


def test_every_file_is_imported_with_the_counts_that_a_person_expects(platform: RunningPlatform) -> None:
    platform.client.tenants.apply(TENANT, {"client": TENANT})

    def imported(file: CorpusFile) -> dict[str, int]:
        platform.client.tables.apply(TENANT, file.table, propose(file.path).document)
        ended = platform.send(f"{TENANT}/{file.table}", file.path)
        assert ended["state"] == "completed", ended
        rows = ended["rows"]
        return {
            "accepted": rows["accepted"],
            "rejected": rows["rejected"],
            "repeated_headers": ended["repeated_headers"],
        }

    files = corpus()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        counted = dict(zip((file.path.name for file in files), pool.map(imported, files), strict=True))
    assert counted == {file.path.name: file.counts for file in files}
