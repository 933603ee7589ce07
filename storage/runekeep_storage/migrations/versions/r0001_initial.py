"""Accounts, spaces, sessions, archives, jobs, memories, passages and the outbox.

Keys begin with account and user, so that a table can be sharded by them. Times are microseconds since 1970 (UTC),
booleans are 0/1, JSON is text: the same statements run on SQLite and PostgreSQL.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0001"
down_revision = None
compatible_from = "r0001"

# Sorted by code points on both engines, because `<` cuts pages and ranges of URIs.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _text(name: str, default: str | None = "") -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=default is None, server_default=default)


def _number(name: str, default: str | None = "0") -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=default is None, server_default=default)


def _key(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, TEXT, nullable=False) for name in names]


def upgrade() -> None:
    rowless = {"sqlite_with_rowid": False}
    op.create_table(
        "accounts",
        *_key("account"),
        # Fair shares: among the accounts with a ready job the one with the smallest virtual time is served next.
        # `vstart` is where its last claim started.
        _number("weight", "1"),
        _number("vtime"),
        _number("vstart"),
        _number("ready_jobs"),
        # Consecutive claims that went to jobs ahead of its commits, see runekeep_storage.jobs.claiming.
        _number("ahead"),
        # The account is skipped until then: all that it may spend today is reserved, see runekeep_storage.jobs.budgets.
        _number("held_until"),
        _number("created_at"),
        sa.PrimaryKeyConstraint("account"),
        **rowless,
    )
    ready = sa.text("ready_jobs > 0")
    op.create_index("accounts_ready", "accounts", ["vtime", "account"], sqlite_where=ready, postgresql_where=ready)
    op.create_index("accounts_by_start", "accounts", ["vstart"])
    op.create_table(
        "spaces",
        *_key("account", "user_id"),
        _number("revision"),
        # The index with that id holds every revision up to this one; see runekeep_storage.spaces.watermarks. Empty: no
        # index yet.
        _number("indexed_revision"),
        _text("index_id"),
        # When its points were last compared with its rows.
        _number("checked_at"),
        # Number of its newest outbox entry; no number is used twice.
        _number("outbox_number"),
        # How often data of the space was deleted. An export that was under way then fails.
        _number("losses"),
        # When its rows were imported; 0: they were not.
        _number("imported_at"),
        _number("created_at"),
        sa.PrimaryKeyConstraint("account", "user_id"),
        **rowless,
    )
    unmarked = sa.text("indexed_revision < revision")
    op.create_index(
        "spaces_unmarked", "spaces", ["account", "user_id"], sqlite_where=unmarked, postgresql_where=unmarked
    )
    op.create_index("spaces_by_index", "spaces", ["index_id", "account", "user_id"])
    op.create_index("spaces_by_check", "spaces", ["index_id", "checked_at"])
    op.create_table(
        "search_index",
        # One row: the id of the index that this store is searched by.
        _number("slot"),
        _text("index_id"),
        sa.PrimaryKeyConstraint("slot"),
        **rowless,
    )
    op.create_table(
        "sessions",
        *_key("account", "user_id", "session_id"),
        _text("title"),
        _text("policy", "{}"),
        _number("compression_index"),
        _number("last_sequence"),
        _number("archived_sequence"),
        # Counts changes of its fingerprints; the count up to which they are folded into buckets, and when that was
        # done.
        _number("turn_version"),
        _number("covered_version"),
        _number("covered_at"),
        # JSON of runekeep_schemas.auto_commit_rules; empty: the session never commits by itself.
        _text("auto_commit"),
        # Tokens of its live messages.
        _number("live_tokens"),
        # When a message was last appended; 0: never.
        _number("said_at"),
        # When it is idle for long enough to commit by itself; 0: never.
        _number("idle_at"),
        _number("created_at"),
        _number("updated_at"),
        sa.PrimaryKeyConstraint("account", "user_id", "session_id"),
        **rowless,
    )
    idle = sa.text("idle_at > 0")
    op.create_index(
        "sessions_idle",
        "sessions",
        ["idle_at", "account", "user_id", "session_id"],
        sqlite_where=idle,
        postgresql_where=idle,
    )
    op.create_index("sessions_by_activity", "sessions", ["account", "user_id", "updated_at", "session_id"])
    op.create_table(
        "messages",
        *_key("account", "user_id", "session_id"),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        *_key("message_id"),
        _text("role"),
        _text("peer_id"),
        _text("turn_id"),
        _text("speaker"),
        # Before the parts: SQLite reads the first columns of a long row without the rest.
        _number("tokens"),
        # 1: only its position and its id are left, and nobody may use the id again.
        _number("erased"),
        # When it arrived, by this server's clock; `created_at` is what the caller states.
        _number("added_at"),
        # JSON: the level at which its contexts show each canonical URI; empty: it has none.
        _text("shown"),
        _text("parts", "[]"),
        # Number of its tool outputs that are stored separately.
        _number("outputs"),
        _number("created_at"),
        sa.PrimaryKeyConstraint("account", "user_id", "session_id", "sequence"),
        sa.UniqueConstraint("account", "user_id", "session_id", "message_id"),
        **rowless,
    )
    in_turn = sa.text("turn_id <> ''")
    op.create_index(
        "messages_of_turn",
        "messages",
        ["account", "user_id", "session_id", "turn_id", "sequence"],
        sqlite_where=in_turn,
        postgresql_where=in_turn,
    )
    of_peer = sa.text("peer_id <> ''")
    op.create_index(
        "messages_of_peer",
        "messages",
        ["account", "user_id", "peer_id", "session_id", "sequence"],
        sqlite_where=of_peer,
        postgresql_where=of_peer,
    )
    erased = sa.text("erased = 1")
    op.create_index(
        "messages_erased",
        "messages",
        ["account", "user_id", "erased", "session_id", "sequence"],
        sqlite_where=erased,
        postgresql_where=erased,
    )
    showing = sa.text("shown <> ''")
    op.create_index(
        "messages_showing",
        "messages",
        ["account", "user_id", "session_id", "sequence"],
        sqlite_where=showing,
        postgresql_where=showing,
    )
    with_outputs = sa.text("outputs > 0")
    op.create_index(
        "messages_with_outputs",
        "messages",
        ["account", "user_id", "outputs"],
        sqlite_where=with_outputs,
        postgresql_where=with_outputs,
    )
    op.create_table(
        "turns",
        *_key("account", "user_id", "session_id", "turn_id"),
        # Sequences of its first and its last message.
        _number("sequence"),
        _number("last_sequence"),
        _number("started_at"),
        _number("ended_at"),
        _text("summary"),
        sa.PrimaryKeyConstraint("account", "user_id", "session_id", "turn_id"),
        **rowless,
    )
    op.create_index("turns_by_sequence", "turns", ["account", "user_id", "session_id", "sequence"])
    op.create_table(
        "turn_artifacts",
        # name: the turn of a fingerprint, an id of a reaction, the id of a bucket, empty for the active set.
        *_key("account", "user_id", "session_id", "kind", "name"),
        _text("turn_id"),
        # Sequence of the turn's first message; 0 for what belongs to the session.
        _number("sequence"),
        _text("text"),
        # Name of the blob that holds the rest of it, and its URI.
        _text("blob"),
        _text("hosted_uri"),
        # The session's turn_version of its last change; fingerprints only.
        _number("version"),
        # Reactions only.
        _text("origin"),
        _text("reaction"),
        # The time that it refers to.
        _number("said_at"),
        _number("updated_at"),
        sa.PrimaryKeyConstraint("account", "user_id", "session_id", "kind", "name"),
        **rowless,
    )
    of_session = ["account", "user_id", "session_id"]
    op.create_index("turn_artifacts_by_sequence", "turn_artifacts", [*of_session, "sequence"])
    fingerprints = sa.text("kind = 'artifact:turn.fingerprint.v1'")
    op.create_index(
        "turn_fingerprints",
        "turn_artifacts",
        [*of_session, "sequence"],
        sqlite_where=fingerprints,
        postgresql_where=fingerprints,
    )
    op.create_index(
        "turn_fingerprints_by_version",
        "turn_artifacts",
        [*of_session, "version"],
        sqlite_where=fingerprints,
        postgresql_where=fingerprints,
    )
    reacted = sa.text("origin <> ''")
    for name, columns in (
        ("turn_reactions", ["session_id", "said_at", "name"]),
        ("turn_reactions_of_user", ["said_at", "session_id", "name"]),
        ("turn_reactions_of_turn", ["session_id", "turn_id", "said_at", "name"]),
    ):
        # Includes the columns that are counted.
        op.create_index(
            name,
            "turn_artifacts",
            ["account", "user_id", *columns, "origin", "reaction"],
            sqlite_where=reacted,
            postgresql_where=reacted,
        )
    op.create_table(
        "turn_tags",
        *_key("account", "user_id", "tag"),
        sa.Column("said_at", sa.BigInteger, nullable=False),
        *_key("session_id", "kind", "name"),
        _number("sequence"),
        # Only for the tag assistant_signal: the signals, joined in the order in which they are read.
        _text("promoted"),
        sa.PrimaryKeyConstraint("account", "user_id", "tag", "said_at", "session_id", "kind", "name"),
        **rowless,
    )
    op.create_index("turn_tags_of_artifact", "turn_tags", [*of_session, "sequence", "kind", "name"])
    op.create_index("turn_tags_of_session", "turn_tags", [*of_session, "tag", "said_at", "kind", "name", "sequence"])
    op.create_table(
        "tool_outputs",
        *_key("account", "user_id", "session_id", "tool_id"),
        _text("blob"),
        _number("length"),
        sa.PrimaryKeyConstraint("account", "user_id", "session_id", "tool_id"),
        **rowless,
    )
    op.create_table(
        "recalled",
        # What a session was given: a memory by its URI, a passage by session and message.
        *_key("account", "user_id", "session_id", "name"),
        _number("version"),
        # A RecallLevel of the contract.
        _number("level"),
        # Sequence of the message whose archiving ends it, see runekeep_storage.search.recalled.
        _number("sequence"),
        sa.PrimaryKeyConstraint("account", "user_id", "session_id", "name"),
        **rowless,
    )
    op.create_table(
        "usages",
        *_key("account", "user_id", "session_id"),
        sa.Column("number", sa.BigInteger, nullable=False),
        # 0 until a commit takes it.
        _number("archive_index"),
        _text("kind"),
        _text("uri"),
        _text("body", "{}"),
        sa.PrimaryKeyConstraint("account", "user_id", "session_id", "number"),
        **rowless,
    )
    op.create_table(
        "archives",
        *_key("account", "user_id", "session_id"),
        sa.Column("archive_index", sa.BigInteger, nullable=False),
        _number("first_sequence"),
        _number("last_sequence"),
        _text("state", "pending"),
        _text("abstract"),
        _text("overview"),
        _text("diff"),
        _text("task_id"),
        _number("revision"),
        _number("passages_indexed"),
        _number("created_at"),
        _number("done_at"),
        sa.PrimaryKeyConstraint("account", "user_id", "session_id", "archive_index"),
        **rowless,
    )
    # Includes the columns that the context of a session reads.
    op.create_index(
        "archives_by_state",
        "archives",
        ["account", "user_id", "session_id", "state", "archive_index", "first_sequence", "last_sequence"],
    )
    unsearched = sa.text("passages_indexed = 0")
    op.create_index(
        "archives_without_passages",
        "archives",
        ["account", "user_id", "created_at"],
        sqlite_where=unsearched,
        postgresql_where=unsearched,
    )
    op.create_index(
        "archives_to_index", "archives", ["created_at"], sqlite_where=unsearched, postgresql_where=unsearched
    )
    op.create_table(
        "tasks",
        *_key("account", "user_id", "task_id"),
        _text("kind"),
        _text("session_id"),
        _number("archive_index"),
        _text("turn_id"),
        _text("state"),
        _number("attempt"),
        _number("lost_leases"),
        _text("progress"),
        _text("result"),
        _text("error"),
        _text("usage", "{}"),
        _number("last_event"),
        _number("created_at"),
        _number("started_at"),
        _number("ended_at"),
        sa.PrimaryKeyConstraint("account", "user_id", "task_id"),
        **rowless,
    )
    op.create_index("tasks_by_age", "tasks", ["account", "user_id", "created_at", "task_id"])
    ended = sa.text("ended_at > 0")
    op.create_index("tasks_by_end", "tasks", ["ended_at"], sqlite_where=ended, postgresql_where=ended)
    op.create_table(
        "task_events",
        *_key("account", "user_id", "task_id"),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        _number("attempt"),
        _text("kind"),
        _text("body"),
        _number("created_at"),
        sa.PrimaryKeyConstraint("account", "user_id", "task_id", "sequence"),
        **rowless,
    )
    op.create_table(
        "jobs",
        *_key("account", "user_id", "job_id"),
        _text("lane"),
        _number("lane_sequence"),
        _text("kind"),
        _text("session_id"),
        _number("archive_index"),
        _text("plan", "{}"),
        _text("traceparent"),
        _text("state"),
        _number("priority"),
        _number("is_head"),
        # A pending head that has waited long enough.
        _number("is_ready"),
        _number("not_before"),
        _number("attempts"),
        _number("lost_leases"),
        _number("conflicts"),
        _number("lease_epoch"),
        _number("lease_expires"),
        _number("attempt_ends"),
        _text("worker_id"),
        _text("output_id"),
        _number("revision"),
        _text("failures", "[]"),
        _text("repair"),
        # Attempts ever; tokens since it was queued or retried; tokens that the current attempt may spend.
        _number("started"),
        _number("tokens_spent"),
        sa.Column("token_budget", sa.BigInteger, nullable=True),
        _number("created_at"),
        sa.PrimaryKeyConstraint("account", "user_id", "job_id"),
        sa.UniqueConstraint("job_id"),
        **rowless,
    )
    ready_job = sa.text("is_ready = 1")
    op.create_index(
        "jobs_ready",
        "jobs",
        ["account", sa.text("priority DESC"), "created_at", "job_id"],
        sqlite_where=ready_job,
        postgresql_where=ready_job,
    )
    waiting = sa.text("is_head = 1 AND is_ready = 0 AND state = 'pending'")
    op.create_index("jobs_waiting", "jobs", ["not_before"], sqlite_where=waiting, postgresql_where=waiting)
    head = sa.text("is_head = 1")
    op.create_index(
        "jobs_one_head_a_lane",
        "jobs",
        ["account", "user_id", "lane"],
        unique=True,
        sqlite_where=head,
        postgresql_where=head,
    )
    leased = sa.text("state = 'leased'")
    op.create_index("jobs_leased", "jobs", ["lease_expires"], sqlite_where=leased, postgresql_where=leased)
    op.create_index("jobs_leased_of_account", "jobs", ["account"], sqlite_where=leased, postgresql_where=leased)
    still_open = sa.text("state IN ('pending', 'leased')")
    op.create_index(
        "jobs_open",
        "jobs",
        ["account", "user_id", "kind"],
        sqlite_where=still_open,
        postgresql_where=still_open,
    )
    op.create_index("jobs_by_lane", "jobs", ["account", "user_id", "lane", "lane_sequence"])
    # Without ended jobs, of which a lane collects thousands.
    queued = sa.text("state = 'pending'")
    op.create_index(
        "jobs_queued",
        "jobs",
        ["account", "user_id", "lane", "lane_sequence"],
        sqlite_where=queued,
        postgresql_where=queued,
    )
    op.create_table(
        "commits",
        *_key("account", "user_id"),
        sa.Column("revision", sa.BigInteger, nullable=False),
        # commit, caller, rollback or erasure.
        _text("origin"),
        _text("job_id"),
        _text("session_id"),
        _number("archive_index"),
        # For a rollback: the revision that it took back.
        _number("rolled_back"),
        _number("created_at"),
        sa.PrimaryKeyConstraint("account", "user_id", "revision"),
        **rowless,
    )
    rollback = sa.text("rolled_back > 0")
    op.create_index(
        "commits_by_rolled_back",
        "commits",
        ["account", "user_id", "rolled_back"],
        sqlite_where=rollback,
        postgresql_where=rollback,
    )
    op.create_index("commits_by_time", "commits", ["account", "user_id", "created_at"])
    # A job makes one revision. Writes by hand have no job.
    of_job = sa.text("job_id <> ''")
    op.create_index(
        "commits_by_job",
        "commits",
        ["account", "user_id", "job_id"],
        unique=True,
        sqlite_where=of_job,
        postgresql_where=of_job,
    )
    op.create_table(
        "memories",
        *_key("account", "user_id", "uri"),
        sa.Column("version", sa.BigInteger, nullable=False),
        _text("memory_type"),
        _text("peer_id"),
        _text("fields", "{}"),
        _text("content"),
        _text("abstract"),
        _text("overview"),
        _text("sources", "[]"),
        _text("extractor", "{}"),
        _number("deleted"),
        _number("rev_from"),
        # 0 while it is the current version.
        _number("rev_to"),
        sa.Column("dense", sa.LargeBinary, nullable=True),
        _text("dense_model"),
        sa.Column("sparse", sa.LargeBinary, nullable=True),
        # When the described event happened, if its type has a time of its own.
        sa.Column("happened_at", sa.BigInteger, nullable=True),
        # JSON array.
        _text("tags", "[]"),
        _number("created_at"),
        _number("updated_at"),
        sa.PrimaryKeyConstraint("account", "user_id", "uri", "version"),
        **rowless,
    )
    op.create_table(
        "memory_sources",
        # Messages that memories came from, and the first version of each that did.
        *_key("account", "user_id", "session_id", "message_id", "uri"),
        _number("version"),
        sa.PrimaryKeyConstraint("account", "user_id", "session_id", "message_id", "uri"),
        **rowless,
    )
    op.create_index("memory_sources_of_memory", "memory_sources", ["account", "user_id", "uri", "version"])
    current = sa.text("rev_to = 0")
    op.create_index(
        "memories_current",
        "memories",
        ["account", "user_id", "uri"],
        unique=True,
        sqlite_where=current,
        postgresql_where=current,
    )
    # Covers the query for the newest change below a directory; `rev_to` is included so that SQLite chooses this index.
    op.create_index(
        "memories_changed",
        "memories",
        ["account", "user_id", "rev_to", "uri", "updated_at"],
        sqlite_where=current,
        postgresql_where=current,
    )
    # Current versions by the revision that made them, others by the revision that superseded them.
    op.create_index("memories_by_revision", "memories", ["account", "user_id", "rev_to", "rev_from"])
    # What a revision made, even if superseded since, and whether it was a delete.
    op.create_index("memories_by_origin", "memories", ["account", "user_id", "rev_from", "deleted"])
    undense = sa.text("dense IS NULL AND deleted = 0 AND rev_to = 0")
    op.create_index(
        "memories_without_vector",
        "memories",
        ["account", "user_id", "uri"],
        sqlite_where=undense,
        postgresql_where=undense,
    )
    op.create_table(
        "active_counts",
        *_key("account", "user_id", "uri"),
        _number("uses"),
        sa.PrimaryKeyConstraint("account", "user_id", "uri"),
        **rowless,
    )
    op.create_table(
        "passages",
        *_key("account", "user_id", "session_id"),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        _number("archive_index"),
        # Task of the commit that archived it: a later session of the same name has other commits, so other points.
        _text("task_id"),
        _text("message_id"),
        _text("peer_id"),
        _text("content"),
        sa.Column("dense", sa.LargeBinary, nullable=True),
        _text("dense_model"),
        sa.Column("sparse", sa.LargeBinary, nullable=True),
        _number("created_at"),
        sa.PrimaryKeyConstraint("account", "user_id", "session_id", "sequence"),
        **rowless,
    )
    undense_passages = sa.text("dense IS NULL")
    op.create_index(
        "passages_without_vector",
        "passages",
        ["account", "user_id", "session_id", "sequence"],
        sqlite_where=undense_passages,
        postgresql_where=undense_passages,
    )
    op.create_table(
        "outbox",
        *_key("account", "user_id"),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        # upsert: write a version to the index; passage: write a passage again; delete: remove points, not before
        # due_at; delete_passages: remove the points of messages that a commit archived.
        _text("op"),
        # 1 for the two that remove points.
        _number("takes"),
        _text("uri"),
        _number("version"),
        _text("point_id"),
        _text("task_id"),
        _number("first_sequence"),
        _number("last_sequence"),
        _number("due_at"),
        sa.PrimaryKeyConstraint("account", "user_id", "revision", "number"),
        **rowless,
    )
    op.create_index("outbox_by_due", "outbox", ["account", "user_id", "takes", "due_at", "revision", "number"])
    # Users who are deleted, or whose data is being erased, while rows that must go still exist.
    op.create_table(
        "shut_spaces",
        *_key("account", "user_id"),
        # The erasure that removes rows; empty: all rows go.
        _text("erasure_id"),
        # The import that writes its rows, and until when it counts as alive; empty and 0: none.
        _text("import_id"),
        _number("import_until"),
        sa.PrimaryKeyConstraint("account", "user_id"),
        **rowless,
    )
    # Deleted sessions whose messages and passages still exist.
    op.create_table(
        "leftovers",
        *_key("account", "user_id", "session_id"),
        sa.PrimaryKeyConstraint("account", "user_id", "session_id"),
        **rowless,
    )
    # Spaces whose folder may hold blobs that no row names.
    op.create_table(
        "blob_sweeps",
        *_key("account", "user_id"),
        _number("due_at"),
        _number("asked"),
        # When a blob was last announced.
        _number("expected_at"),
        sa.PrimaryKeyConstraint("account", "user_id"),
        **rowless,
    )
    op.create_index("blob_sweeps_by_time", "blob_sweeps", ["due_at"])
    op.create_table(
        "requests",
        *_key("account", "user_id", "method", "request_id"),
        # The session that the response is deleted with; empty if it outlives every session, or is void.
        _text("session_id"),
        _text("digest"),
        sa.Column("response", sa.LargeBinary, nullable=False),
        _number("created_at"),
        sa.PrimaryKeyConstraint("account", "user_id", "method", "request_id"),
        **rowless,
    )
    op.create_index("requests_by_age", "requests", ["created_at"])
    of_a_session = sa.text("session_id <> ''")
    op.create_index(
        "requests_of_session",
        "requests",
        [*of_session, "method", "request_id"],
        sqlite_where=of_a_session,
        postgresql_where=of_a_session,
    )
    op.create_table(
        "extraction_records",
        *_key("account", "user_id", "task_id"),
        sa.Column("number", sa.BigInteger, nullable=False),
        # Session and number of the archive, or the time of a job without one: the rest of a deleted session is removed
        # in slices by them.
        *_key("session_id"),
        _number("sequence"),
        # Fencing token of the attempt.
        _number("token"),
        _text("extractor", "{}"),
        _number("base_revision"),
        _text("type_digests", "{}"),
        _text("failure"),
        # JSON, compressed by zlib.
        sa.Column("calls", sa.LargeBinary, nullable=False),
        _number("ended_at"),
        # With row ids, unlike the others: a row may be long.
        sa.PrimaryKeyConstraint("account", "user_id", "task_id", "number"),
    )
    op.create_index(
        "extraction_records_of_session", "extraction_records", ["account", "user_id", "session_id", "sequence"]
    )
    op.create_table(
        "erasures",
        *_key("account", "user_id", "erasure_id"),
        # user, peer, session or messages.
        _text("scope"),
        # taking, removing, purging or verified.
        _text("state"),
        # JSON: numbers of what was erased.
        _text("receipt", "{}"),
        # JSON: data by which the rest is found and verified; names of memories and of a peer as digests. Empty once
        # verified.
        _text("remains"),
        _number("created_at"),
        _number("verified_at"),
        sa.PrimaryKeyConstraint("account", "user_id", "erasure_id"),
        **rowless,
    )
    op.create_index("erasures_by_age", "erasures", ["account", "user_id", "created_at", "erasure_id"])
    unverified = sa.text("verified_at = 0")
    op.create_index("erasures_open", "erasures", ["created_at"], sqlite_where=unverified, postgresql_where=unverified)
    op.create_table(
        "usage_totals",
        # For an account: user_id and session_id empty; for a user: session_id empty.
        *_key("account", "user_id", "session_id"),
        sa.Column("day", sa.BigInteger, nullable=False),
        *_key("phase", "model"),
        _number("calls"),
        _number("input_tokens"),
        _number("cache_write_tokens"),
        _number("cache_read_tokens"),
        _number("output_tokens"),
        sa.PrimaryKeyConstraint("account", "user_id", "session_id", "day", "phase", "model"),
        **rowless,
    )
    op.create_table(
        "image_descriptions",
        # By SHA-256 of the URL.
        *_key("account", "user_id", "session_id", "digest"),
        _text("description"),
        _number("created_at"),
        sa.PrimaryKeyConstraint("account", "user_id", "session_id", "digest"),
        **rowless,
    )
    op.create_index("image_descriptions_by_digest", "image_descriptions", ["account", "user_id", "digest"])
