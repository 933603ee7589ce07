"""Migrations of the relational store, the same for every engine; run by storage.migrate."""
