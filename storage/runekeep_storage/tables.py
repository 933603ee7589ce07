"""Declares for each table what it holds, who owns its rows, and how they are exported, erased, counted and verified.

Erasure, verification, export, import, statistics and the doctor read the declarations. `tests/contract/test_tables.py`
compares them with the tables of a new store, so that no table and no text escapes erasure.
"""

from dataclasses import dataclass
from typing import Final

SLICE: Final = 500
"""Maximum messages, and maximum passages, that one transaction deletes: some 20 ms of SQLite's writer."""
TURNS: Final = 100
"""Maximum turns, artifacts and tags that one transaction deletes: these have more indexes. Artifacts and tags may
exceed this, because those of one turn are deleted together, and so are those of the session itself."""
RECORDS: Final = 20
"""Maximum records of attempts that one transaction deletes: each may hold some hundred kilobytes of raw answers."""
ANSWERS: Final = 100
"""Maximum stored responses that one transaction voids: each may hold some ten kilobytes."""


@dataclass(frozen=True, slots=True)
class PlainDelete:
    """Rows are deleted by the columns of their owner: those of a session in one statement, those of a user in slices.
    `order`: columns of the index that the slices follow; empty: the key. `only`: SQL condition; other rows stay."""

    order: tuple[str, ...] = ()
    only: str = "TRUE"


@dataclass(frozen=True, slots=True)
class Leftovers:
    """`runekeep_storage.spaces.pending_deletions` deletes the rows after the session is deleted, in the order of their
    column `sequence`. `most`: maximum rows of one transaction."""

    most: int


class Statement(str):
    """The name, below `runekeep_storage`, of a function that has statements of its own."""


class Excluded(str):
    """The reason why nothing is erased, or nothing exported."""


@dataclass(frozen=True, slots=True)
class Export:
    """Rows are lines of an entry, in the form of `runekeep_storage.transfer.exports.rows.FORMS`.

    `is_read_later`: rows never change once written, so they are read in slices after the moment of the export. `only`:
    SQL condition; other rows are not exported. `size`: SQL for the approximate bytes of a row that may be long.
    """

    is_read_later: bool = False
    only: str = "TRUE"
    size: str = ""


_NO_ROWS: Final = Excluded("It has no rows of a user, a session or a message.")
_OF_STORE: Final = Excluded("It describes this store.")


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `owner`: the columns that identify the owner of a row. `key`: the rest of the primary key. `texts`: the
    columns with what users and agents said, or with what was derived from it.

    `user`, `session`, `message`: how rows are erased with their user, their session, or a message that they came from.
    `task`: the column with the id of a task; rows are deleted together with it. `checks`: names of the functions of
    `runekeep_storage.erasure.verification` that count what an erasure left. `is_checked_after_import`: whether the
    checks run even if the user's data were imported after the erasure. `exported`: a Statement derives the rows again
    during or after an import.

    `is_in_receipts`, `is_in_usage`: whether receipts of erasures, or statistics of accounts, count the rows that meet
    `current` (SQL). `sizes`: columns whose bytes the statistics sum.
    """

    name: str
    holds: str
    owner: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    user: PlainDelete | Statement | Excluded = _NO_ROWS
    session: PlainDelete | Leftovers | Statement | Excluded = _NO_ROWS
    message: Statement | Excluded = _NO_ROWS
    task: str = ""
    checks: tuple[str, ...] = ()
    is_checked_after_import: bool = False
    exported: Export | Statement | Excluded = _OF_STORE
    is_in_receipts: bool = False
    is_in_usage: bool = False
    current: str = "TRUE"
    sizes: tuple[str, ...] = ()


_ACCOUNT: Final = ("account",)
_USER: Final = ("account", "user_id")
_SESSION: Final = ("account", "user_id", "session_id")

_DELETE: Final = PlainDelete()
_LEFT: Final = Statement("spaces.pending_deletions.clear")
_WITH_TASK: Final = Statement("jobs.retention.forget_task")
_ERASE: Final = Statement("erasure.messages.erase")
_TAKE_BACK: Final = Statement("erasure.memories.take_back")
_OUT_OF_TURNS: Final = Statement("erasure.turns.take_away")
_OUT_OF_TASKS: Final = Statement("erasure.derived_data.out_of_tasks")
OUT_OF_NAMES: Final = Statement("erasure.derived_data.out_of_names")
_VOID: Final = Statement("drivers.common.idempotent_requests.void")

TABLES: Final = (
    # Entries of an export have this order, which readers rely on. Users are erased in the same order. Sessions are
    # first, so that a passage that a relay stores late already belongs to a pending deletion. `usage_totals` comes
    # before `tasks`, because a worker may report tokens as long as its task exists.
    Table("sessions", "Sessions and the positions in them.", _SESSION, ("session_id",),
          texts=("title", "policy", "auto_commit"),
          user=_DELETE, session=_DELETE, message=_ERASE, checks=("count_older_rows",),
          exported=Export(), is_in_receipts=True),
    Table("jobs", "Work for extractors, with notes for the next attempt.", _SESSION, ("job_id",),
          texts=("plan", "failures", "repair"),
          user=_DELETE, session=_WITH_TASK, message=_OUT_OF_TASKS, task="job_id", checks=("count_without_task",),
          exported=Export(only="state IN ('pending', 'leased', 'failed', 'cancelled') AND kind <> 'ask'",
                          size="octet_length(plan)")),
    Table("messages", "What was said.", _SESSION, ("session_id", "sequence"),
          texts=("peer_id", "turn_id", "speaker", "shown", "parts", "calls"),
          user=_LEFT, session=Leftovers(SLICE), message=_ERASE,
          checks=("count_without_session", "count_erased_with_content", "count_older_contexts",
                  "count_messages_of_peer", "count_unerased_messages"),
          exported=Export(is_read_later=True), is_in_receipts=True, is_in_usage=True, current="erased = 0",
          sizes=("parts",)),
    # Before the archives: passages are made from messages together with these descriptions.
    Table("image_descriptions", "What images show, by the digest of their URL.", _SESSION, ("session_id", "digest"),
          texts=("description",),
          user=_DELETE, session=_DELETE, message=_ERASE,
          checks=("count_without_session", "count_older_images"), exported=Export()),
    Table("archives", "Archived parts of sessions, with summaries and diffs.", _SESSION,
          ("session_id", "archive_index"), texts=("abstract", "overview", "diff"),
          user=_DELETE, session=_DELETE, message=Statement("erasure.derived_data.out_of_archives"),
          checks=("count_without_session", "count_stale_diffs", "count_older_summaries"),
          exported=Export(), is_in_receipts=True),
    Table("turns", "Turns, with their summaries.", _SESSION, ("session_id", "turn_id"), texts=("summary",),
          user=_LEFT, session=Leftovers(TURNS), message=_OUT_OF_TURNS, checks=("count_without_session",),
          exported=Export(), is_in_receipts=True, sizes=("summary",)),
    Table("turn_artifacts", "Turn memory: fingerprints, reactions, buckets, selections.", _SESSION,
          ("session_id", "kind", "name"), texts=("name", "text"),
          user=_LEFT, session=Leftovers(TURNS), message=_OUT_OF_TURNS,
          checks=("count_without_session", "count_older_artifacts", "count_older_reactions"),
          exported=Export(size="octet_length(text)"),
          is_in_receipts=True, sizes=("text",)),
    Table("turn_tags", "Tags by which turn memory is found.", _SESSION,
          ("tag", "said_at", "session_id", "kind", "name"), texts=("tag", "name", "promoted"),
          user=_LEFT, session=Leftovers(TURNS), message=_OUT_OF_TURNS, checks=("count_without_session",),
          exported=Statement("transfer.exports.turn_rows.tags_of")),
    Table("tool_outputs", "The blob with the latest large output of each tool call.", _SESSION,
          ("session_id", "tool_id"),
          user=_DELETE, session=_DELETE, message=_ERASE, checks=("count_without_session",), exported=Export()),
    Table("recalled", "What Recall gave to sessions.", _SESSION, ("session_id", "name"), texts=("name",),
          user=_DELETE, session=_DELETE, message=Statement("erasure.transactions.begin"),
          checks=("count_without_session",),
          exported=Export()),
    Table("usages", "Reported uses of memories and skills.", _SESSION, ("session_id", "number"),
          texts=("uri", "body"),
          user=_DELETE, session=_DELETE, message=OUT_OF_NAMES,
          checks=("count_without_session", "count_names_of_deleted"),
          exported=Export(size="octet_length(body)")),
    Table("usage_totals", "Tokens spent, by day, phase and model. Those of an account name no user.", _SESSION,
          ("session_id", "day", "phase", "model"), user=_DELETE, session=_DELETE),
    Table("tasks", "The state and the result of work, for callers.", _SESSION, ("task_id",),
          texts=("progress", "result", "error"),
          user=_DELETE, session=_WITH_TASK, message=_OUT_OF_TASKS, task="task_id", checks=("count_older_rows",),
          exported=Export(only="kind <> 'ask'", size="octet_length(result)"), is_in_receipts=True),
    Table("proposals", "Operations of commits that wait for review.", _SESSION, ("task_id",),
          texts=("plan", "operations"),
          user=_DELETE, session=_DELETE, message=_OUT_OF_TASKS, task="task_id",
          checks=("count_without_session", "count_older_rows", "count_older_proposals"),
          exported=Export(size="octet_length(operations)")),
    Table("task_events", "The steps of a task, for those who wait for it.", _USER, ("task_id", "sequence"),
          texts=("body",),
          user=_DELETE, session=_WITH_TASK, message=_OUT_OF_TASKS, task="task_id", checks=("count_without_task",),
          exported=Excluded("Nobody waits for a task of another store.")),
    Table("extraction_records", "The answers of models in the attempts at a task.", _SESSION, ("task_id", "number"),
          texts=("failure", "calls"),
          user=_LEFT, session=Leftovers(RECORDS), message=_OUT_OF_TASKS, task="task_id",
          checks=("count_without_session", "count_older_records", "count_older_turn_records"),
          exported=Excluded("They are for the operators of the store that made them.")),
    # Removals of points stay, and there may be very many.
    Table("outbox", "Changes that the index has not received yet.", _USER, ("revision", "number"), texts=("uri",),
          user=PlainDelete(("due_at", "revision", "number"), "takes = 0"), session=_TAKE_BACK, message=_TAKE_BACK,
          checks=("count_stale_upserts",), is_checked_after_import=True,
          exported=Statement("relay.rebuild.write_space")),
    Table("commits", "The time and the origin of each revision.", _SESSION, ("revision",),
          user=_DELETE, session=Excluded("Revisions have no gaps. The id of the session stays."),
          checks=("count_older_revisions",), exported=Export(is_read_later=True)),
    Table("memories", "The versions of memories.", _USER, ("uri", "version"),
          texts=("uri", "peer_id", "fields", "content", "abstract", "overview", "sources", "tags", "dense",
                 "dense_next", "sparse", "line_vectors"),
          user=_DELETE, session=_TAKE_BACK, message=_TAKE_BACK, checks=("count_older_versions",),
          exported=Export(is_read_later=True), is_in_usage=True, current="rev_to = 0 AND deleted = 0",
          sizes=("fields", "content", "abstract", "overview")),
    Table("memory_sources", "The messages that each memory came from, as runs.", _SESSION,
          ("session_id", "message_id", "uri"), texts=("uri",),
          user=_DELETE, session=_TAKE_BACK, message=_TAKE_BACK, checks=("count_stale_sources",),
          exported=Statement("memories.origins.write_named")),
    Table("active_counts", "How often each memory was used.", _USER, ("uri",), texts=("uri",),
          user=_DELETE, session=OUT_OF_NAMES, message=OUT_OF_NAMES,
          checks=("count_names_of_deleted",), exported=Export()),
    Table("passages", "Archived messages as the index has them.", _SESSION, ("session_id", "sequence"),
          texts=("peer_id", "content", "dense", "dense_next", "sparse"),
          user=_LEFT, session=Leftovers(SLICE), message=_ERASE,
          checks=("count_without_session", "count_passages_of_erased"),
          exported=Statement("indexing.passages.store"), is_in_receipts=True),
    Table("requests", "Responses to requests, for repeats of them.", _SESSION, ("method", "request_id"),
          texts=("response",),
          user=_VOID, session=Leftovers(ANSWERS), message=_VOID,
          checks=("count_older_responses",), is_checked_after_import=True,
          exported=Excluded("A repeat goes to the store that responded.")),

    Table("spaces", "Counters of each user's data.", _USER,
          user=Excluded("Revisions and ids of points must never be used again.")),
    Table("space_usage", "What each user has stored.", _USER, user=Statement("erasure.deletion.delete_user")),
    Table("shut_spaces", "Locks of users whose rows are erased or imported.", _USER,
          user=Statement("spaces.space_locks.unlock"), checks=("count_locks",), is_checked_after_import=True),
    Table("leftovers", "Deleted sessions that have rows left.", _SESSION, ("session_id",), user=_LEFT, session=_LEFT),
    Table("blob_sweeps", "Users who may have blobs that no row names.", _USER, user=Statement("blobs.sweeps.done")),
    Table("erasures", "Receipts of erasures, with what verification looks for.", _USER, ("erasure_id",),
          user=Excluded("A receipt names nothing that was erased; the rest is emptied when it is verified.")),

    Table("api_keys", "Digests and owners of keys.", _USER, ("key_id",),
          user=Excluded("Operators revoke keys.")),
    Table("audit_events", "Audited calls.", _USER, ("sequence",), user=Excluded("They show who erased what.")),
    Table("accounts", "The share of each account in the workers.", _ACCOUNT),
    Table("account_limits", "Limits of accounts that differ from the settings.", _ACCOUNT),
    Table("account_usage", "What each account has stored.", _ACCOUNT),
    Table("usage_counts", "When accounts are counted next.", key=("slot",)),
    Table("workers", "Workers, and the jobs that they lost.", key=("holder", "worker_id")),
    Table("search_index", "The index that searches use.", key=("slot",)),
    Table("embedder_changes", "The newest change of the embedder.", key=("slot",)),
    Table("store_identity", "The identity of the store, under an empty account.", _ACCOUNT),
    Table("store_schema", "The servers that may work on the schema.", key=("revision",)),
    Table("alembic_version", "The newest migration.", key=("version_num",)),
)  # fmt: skip
BY_NAME: Final = {table.name: table for table in TABLES}
SLICES: Final = {table.name: table.session.most for table in TABLES if isinstance(table.session, Leftovers)}
"""The tables of Leftovers, and how many rows of each one transaction deletes."""
