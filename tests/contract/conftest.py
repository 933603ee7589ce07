"""Fixtures of the contract suites."""

from tests.support.storage.archives import archive_files
from tests.support.storage.databases import clock, database, new_store
from tests.support.storage.erasures import store
from tests.support.storage.migrations import place
from tests.support.storage.postgres_servers import servers, url
from tests.support.storage.search import edge_class, registry, search
from tests.support.storage.state_machines import share

__all__ = [
    "archive_files",
    "clock",
    "database",
    "edge_class",
    "new_store",
    "place",
    "registry",
    "search",
    "servers",
    "share",
    "store",
    "url",
]
