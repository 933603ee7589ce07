"""Moves data out and in: exports, imports, backups, restores, and diagnostics of a store without a server."""
