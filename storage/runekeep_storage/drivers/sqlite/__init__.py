"""The SQLite driver: one writer thread with group commit, reader threads, checks for damage."""
