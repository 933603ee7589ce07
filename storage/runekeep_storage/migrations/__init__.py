"""Migrations of the relational store, the same for every engine; runekeep_storage.migrations.migrate runs them."""
