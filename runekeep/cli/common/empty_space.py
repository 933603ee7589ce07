"""Says that a user has nothing at all, which is mostly a wrong or forgotten --user, and which users look alike."""

from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from runekeep.client.sync_client import Client

MAX_COMPARED: Final = 1000
MAX_LISTED: Final = 5
"""Maximum number of users of an account whose names are listed when none of them is similar."""


def describe_empty_space(client: "Client") -> str:
    """Returns a sentence if the user has neither memories nor sessions; empty otherwise."""
    # Every user has the same few directories, also one without anything.
    space = client.tree("", level_limit=2, node_limit=100)
    if any(entry.depth > 1 for entry in space.entries):
        return ""
    user = space.uri.removeprefix("viking://user/")
    return (
        f"The user `{user}` has no memories and no sessions.{_others(client, user)}"
        " --user or RUNEKEEP_USER names another user."
    )


def _others(client: "Client", user: str) -> str:
    """Returns a sentence about the users of the account who were probably meant; empty if the credentials may not list
    them or there are none."""
    from runekeep.client.connection.errors import RunekeepError

    try:
        # Those with the same first letter come first, because large accounts have more users than are compared.
        listed = [one for prefix in (user[:1], "") for one in islice(client.users(prefix), MAX_COMPARED)]
    except RunekeepError:
        return ""
    names = list(dict.fromkeys(one.user for one in listed))
    if near := get_close_matches(user, names):
        return f" Did you mean {' or '.join(f'`{name}`' for name in near)}?"
    if len(names) > MAX_LISTED:
        return " `runekeep user list` lists the users of the account."
    return f" Users of the account: {', '.join(f'`{name}`' for name in names)}." if names else ""
