"""All mailboxes of one platform: what a process opens at its start, and hands out part by part."""

from dataclasses import dataclass
from pathlib import Path

from millrace.exchange.aged import AgedVersions
from millrace.exchange.app_folders import AppFolders
from millrace.exchange.app_news import AppNews
from millrace.exchange.apps import AppBoard
from millrace.exchange.data_plane import DataPlaneNotes
from millrace.exchange.definitions import DefinitionStore
from millrace.exchange.ends import EndBox
from millrace.exchange.held_chunks import HeldChunks
from millrace.exchange.home import Home
from millrace.exchange.keys import KeyFiles, keyring_of
from millrace.exchange.log_keys import LogKeys
from millrace.exchange.op_keys import OpKeyFiles
from millrace.exchange.places import Places
from millrace.exchange.raw_chunks import RawChunks
from millrace.exchange.rule_keys import RuleKeys
from millrace.exchange.safe_version import SafeVersion
from millrace.exchange.sink_kinds import SinkKinds
from millrace.exchange.stops import StopList
from millrace.exchange.tenant_files import TenantFiles
from millrace.seal.keyring import Keyring, WrappedKeys
from millrace.settings import KmsSettings


@dataclass(frozen=True, slots=True)
class Exchange:
    definitions: DefinitionStore
    stops: StopList
    ends: EndBox
    aged: AgedVersions
    sink_kinds: SinkKinds
    safe_version: SafeVersion
    data_plane: DataPlaneNotes
    apps: AppBoard
    app_news: AppNews
    rule_keys: RuleKeys
    held_chunks: HeldChunks
    raw_chunks: RawChunks
    keys: WrappedKeys
    op_keys: OpKeyFiles
    log_keys: LogKeys
    places: Places
    tenant_files: TenantFiles
    app_folders: AppFolders

    def keyring(self, kms: KmsSettings) -> Keyring:
        return keyring_of(self.keys, kms)


def open_exchange(root: Path, *, durable: bool = False) -> Exchange:
    """The embedded form: files below one folder, which is made if it is missing. `durable`: what is written to tables
    survives a power cut."""
    home = Home(root)
    home.make_private()
    return Exchange(
        definitions=DefinitionStore(home),
        stops=StopList(home),
        ends=EndBox(home),
        aged=AgedVersions(home),
        sink_kinds=SinkKinds(home),
        safe_version=SafeVersion(home),
        data_plane=DataPlaneNotes(home),
        apps=AppBoard(home),
        app_news=AppNews(home),
        rule_keys=RuleKeys(home),
        held_chunks=HeldChunks(home),
        raw_chunks=RawChunks(home),
        keys=KeyFiles(home),
        op_keys=OpKeyFiles(home),
        log_keys=LogKeys(home),
        places=Places(home, durable),
        tenant_files=TenantFiles(home),
        app_folders=AppFolders(home),
    )
