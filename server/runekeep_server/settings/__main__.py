"""Prints `docs/reference/settings.md`: `python -m runekeep_server.settings`."""

from runekeep_server.settings.loading import reference

print(reference(), end="")
