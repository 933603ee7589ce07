"""Fixtures of the contract suites."""

from tests.contract.store_fixtures import clock, database, migrated_file, new_store

__all__ = ["clock", "database", "migrated_file", "new_store"]
