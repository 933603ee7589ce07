"""Prints `docs/settings.md`: `python -m server.settings`."""

from server.settings.loading import reference

print(reference(), end="")
