"""Shared parts of all engines: their interface, exact counts, turn records, bounded concurrency."""
