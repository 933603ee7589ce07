"""Says that a user has nothing at all, which is mostly a wrong or forgotten --user."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runekeep.client.sync_client import Client


def describe_empty_space(client: "Client") -> str:
    """Returns a sentence if the user has neither memories nor sessions; empty otherwise."""
    # Every user has the same few directories, also one without anything.
    space = client.tree("", level_limit=2, node_limit=100)
    if any(entry.depth > 1 for entry in space.entries):
        return ""
    user = space.uri.removeprefix("viking://user/")
    return f"The user `{user}` has no memories and no sessions. --user or RUNEKEEP_USER names another user."
