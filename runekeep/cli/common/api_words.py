"""Puts errors of the server, which name calls and fields of the API, into words of the command line."""

import re
from typing import Final

COMMANDS: Final = {
    "AcceptProposal": "proposal accept",
    "AddMessages": "ingest",
    "AskMemory": "ask",
    "CancelTask": "task cancel",
    "ChangeEmbedder": "index embed",
    "ClearFeedback": "turn feedback --clear",
    "CommitSession": "session commit",
    "CopyUser": "user copy",
    "CreateApiKey": "admin key create",
    "CreateSession": "session create",
    "DeleteSession": "session delete",
    "DeleteUser": "user delete",
    "DiffRevisions": "history diff",
    "EditProposal": "proposal edit",
    "EraseData": "erase",
    "ExplainSearch": "memory find --why",
    "ExportSpace": "export",
    "FindMemories": "memory find",
    "GetErasure": "erase show",
    "GetExtractionRecord": "task record",
    "GetMemory": "memory read",
    "GetMemoryDiff": "memory diff",
    "GetProposal": "proposal show",
    "GetServerStatus": "admin status",
    "GetSession": "session show",
    "GetSessionContext": "session context",
    "GetTask": "task show",
    "GetTurn": "turn show",
    "GetUsage": "usage",
    "GlobDocuments": "memory glob",
    "GrepDocuments": "memory grep",
    "ImportSpace": "import",
    "ListAccounts": "admin account list",
    "ListApiKeys": "admin key list",
    "ListArchives": "session show",
    "ListAssistantSignals": "turn signals",
    "ListAuditEvents": "admin audit",
    "ListDirectory": "memory ls",
    "ListErasures": "erase list",
    "ListFeedback": "turn feedback-list",
    "ListMemoryBuckets": "turn buckets",
    "ListMemoryTypes": "memory types",
    "ListMemoryVersions": "memory versions",
    "ListMessageMemories": "history sources",
    "ListMessages": "session messages",
    "ListProposals": "proposal ls",
    "ListRevisions": "history list",
    "ListSessions": "session list",
    "ListTasks": "task list",
    "ListTurnArtifacts": "turn artifacts",
    "ListTurns": "turn list",
    "ListUsers": "user list",
    "LoadTurnContext": "turn context",
    "ReadDocument": "memory read",
    "Recall": "recall",
    "ReconcileMemoryBuckets": "turn reconcile",
    "RecordUsage": "ingest",
    "RefuseProposal": "proposal refuse",
    "RetryTask": "task retry",
    "RevokeApiKey": "admin key revoke",
    "RollbackRevision": "history rollback",
    "RollbackSession": "session rollback",
    "RotateApiKey": "admin key rotate",
    "SetTurnSelection": "turn select",
    "StreamMessages": "ingest",
    "SubmitFeedback": "turn feedback",
    "SubmitTurn": "turn submit",
    "UpdateAccountLimits": "admin account limits",
    "UpdateMemoryBucket": "turn bucket",
    "UpdateSession": "session update",
    "WatchTask": "task watch",
    "WriteMemories": "memory write",
}
"""The command that makes a call, by the name of the call; tests compare it with the contract and the commands."""
_OPTIONS: Final = {
    "`force`": "--force",
    "`preview`": "--preview",
    "include_ended": "--include-ended",
    "min_revision": "--min-revision",
}
_SHOWN: Final = {**{call: f"`runekeep {command}`" for call, command in COMMANDS.items()}, **_OPTIONS}
_URI: Final = r"`viking://[^`]*`|viking://\S+"
_WORDS: Final = re.compile("|".join([_URI, *(rf"(?<!\w){re.escape(word)}(?!\w)" for word in _SHOWN)]))


def in_command_words(text: str) -> str:
    """Returns a message of the server with commands and options in place of calls and fields."""
    # A URI matches first and stays: a memory may be named like a call.
    return _WORDS.sub(lambda found: _SHOWN.get(found.group(), found.group()), text)
