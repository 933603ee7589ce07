"""Fixtures of the tests of one driver, index or file format."""

from tests.support.storage.archives import archive_files
from tests.support.storage.databases import clock, database, new_store
from tests.support.storage.postgres_servers import servers, url
from tests.support.storage.search import edge_class, registry, search

__all__ = ["archive_files", "clock", "database", "edge_class", "new_store", "registry", "search", "servers", "url"]
