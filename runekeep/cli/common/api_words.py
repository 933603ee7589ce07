"""Puts errors of the server, which name calls and fields of the API, into words of the command line."""

import re
from typing import Final

_COMMANDS: Final = {
    "ClearFeedback": "`runekeep turn feedback --clear`",
    "CommitSession": "`runekeep session commit`",
    "ListApiKeys": "`runekeep admin key list`",
    "ListArchives": "`runekeep session show`",
    "ListMemoryBuckets": "`runekeep turn buckets`",
    "ListMemoryTypes": "`runekeep memory types`",
    "ListRevisions": "`runekeep history list`",
    "ListTurns": "`runekeep turn list`",
    "LoadTurnContext": "`runekeep turn context`",
    "WatchTask": "`runekeep task watch`",
    "`force`": "--force",
    "`preview`": "--preview",
    "include_ended": "--include-ended",
    "min_revision": "--min-revision",
}
_URI: Final = r"`viking://[^`]*`|viking://\S+"
_WORDS: Final = re.compile("|".join([_URI, *(rf"(?<!\w){re.escape(word)}(?!\w)" for word in _COMMANDS)]))


def in_command_words(text: str) -> str:
    """Returns a message of the server with commands and options in place of calls and fields."""
    # A URI matches first and stays: a memory may be named like a call.
    return _WORDS.sub(lambda found: _COMMANDS.get(found.group(), found.group()), text)
