"""Explains that something does not exist: how to list what exists, and which names are similar."""

from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Final

from runekeep.cli.common.empty_space import MAX_COMPARED, describe_empty_space

if TYPE_CHECKING:
    from runekeep.client.connection.errors import RunekeepError
    from runekeep.client.sync_client import Client

_LISTS: Final = {
    "API key": "runekeep admin key list --include-ended",
    "archive": "runekeep session show SESSION",
    "bucket": "runekeep turn buckets SESSION",
    "directory": "runekeep memory tree",
    "document": "runekeep memory tree",
    "erasure": "runekeep erase list",
    "memory": "runekeep memory tree",
    "message": "runekeep session messages SESSION --all",
    "peer": "runekeep memory tree",
    "proposal": "runekeep proposal ls --decided",
    "revision": "runekeep history list",
    "session": "runekeep session list",
    "task": "runekeep task list",
    "turn": "runekeep turn list SESSION",
}
"""The command that lists what exists, by the kind of what does not."""
_IN_TREE: Final = ("directory", "document", "memory", "peer")


def explain_not_found(client: "Client", error: "RunekeepError") -> tuple[str, str]:
    """Returns what does not exist, and what to do. Empty texts if the server does not say what is missing."""
    command = _LISTS.get(error.resource_type)
    if not error.resource or command is None:
        return "", ""
    similar = _similar(client, error)
    meant = f" Did you mean {' or '.join(f'`{name}`' for name in similar)}?" if similar else ""
    advice = f"`{command}` lists what exists."
    if error.resource_type != "API key":
        advice += f" {_whose(client)}"
    return f"There is no {error.resource_type} `{error.resource}`.{meant}", advice


def _whose(client: "Client") -> str:
    """Returns advice about the user: that it has nothing, or how to name another one."""
    from runekeep.client.connection.errors import RunekeepError

    try:
        nothing = describe_empty_space(client)
    except RunekeepError:
        nothing = ""
    return nothing or "--user and --account name another user."


def _similar(client: "Client", error: "RunekeepError") -> list[str]:
    """Returns up to three names like the one that does not exist, best first; none if they cannot be listed."""
    from runekeep.client.connection.errors import RunekeepError

    try:
        if error.resource_type == "session":
            names = {one.session_id: one.session_id for one in islice(client.list_sessions(), MAX_COMPARED)}
        elif error.resource_type in _IN_TREE:
            entries = client.tree("", level_limit=16, node_limit=MAX_COMPARED).entries
            names = {_below_user(entry.uri): entry.uri for entry in entries}
        else:
            return []
    except RunekeepError:
        return []
    wanted = _below_user(error.resource)
    # A name in a wrong folder is meant more often than a similar name.
    same = [uri for path, uri in names.items() if path.rpartition("/")[2] == wanted.rpartition("/")[2]]
    near = [names[path] for path in get_close_matches(wanted, names)]
    return list(dict.fromkeys([*same, *near]))[:3]


def _below_user(name: str) -> str:
    """Returns the part of a URI within the user's space; names that are no URIs as they are."""
    return name.removeprefix("viking://user/").partition("/")[2] if name.startswith("viking://user/") else name
