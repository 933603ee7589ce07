"""Runs transactions on SQLite and PostgreSQL."""
