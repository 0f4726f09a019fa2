"""Where sealed things are: the folders of a table in which they may lie, opened with the keys to them."""

from millrace.lake.sidecar import StagedFile
from millrace.lake.store import Store
from millrace.model.names import Home
from millrace.seal.cipher import Seal
from millrace.seal.files import SealedStore
from millrace.seal.keyring import Keyring


def error_store(home: Home, keyring: Keyring, tenant: str, table: str, seal: Seal | None = None) -> SealedStore:
    """Rejected rows. The log of the table, and which of its rows are gone, is nobody's secret."""
    root = home.table_errors(tenant, table)
    return SealedStore(root, keyring, tenant, table, seal=seal, is_secret=_is_data_file)


def store_for_rejects(home: Home, keyring: Keyring, tenant: str, table: str, key: str | None, owner: str) -> Store:
    """Where rows of one import are added: sealed by its data key, or plain if it has none."""
    if key is None:
        return Store(home.table_errors(tenant, table))
    return error_store(home, keyring, tenant, table, keyring.seal(tenant, table, key, owner))


def staging_store(home: Home, keyring: Keyring, tenant: str, table: str, seal: Seal | None = None) -> SealedStore:
    """Accepted rows on their way to the sinks."""
    return SealedStore(home.staged(tenant, table), keyring, tenant, table, seal=seal)


def unseal(staged: Store, file: StagedFile, table: Store) -> None:
    """The file as the table may keep it. Done again it changes nothing."""
    for part in file.parts:
        if not table.exists(part):
            table.put_if_absent(part, staged.read(part))


def _is_data_file(name: str) -> bool:
    return "/" not in name and name.endswith(".parquet")
