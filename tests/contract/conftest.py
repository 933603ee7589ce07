"""Fixtures of the contract suites."""

from tests.contract.erasure_fixtures import store
from tests.contract.machine import share
from tests.contract.postgres_fixtures import servers, url
from tests.contract.search_fixtures import edge_class, registry, search
from tests.contract.store_fixtures import clock, database, new_store

__all__ = ["clock", "database", "edge_class", "new_store", "registry", "search", "servers", "share", "store", "url"]
