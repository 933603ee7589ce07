"""Adds what operators need: API keys, the audit log, limits and usage of accounts.

It changes nothing in the first migration, so servers of the release before may run while it is applied.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0002"
down_revision = "r0001"
compatible_from = "r0001"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _text(name: str, default: str | None = "") -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=default is None, server_default=default)


def _number(name: str, default: str | None = "0") -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=default is None, server_default=default)


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        # r0004 changes this table, perhaps in this transaction. Waiting for the whole table after the weaker lock of an
        # index would deadlock with writers.
        op.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
    rowless = {"sqlite_with_rowid": False}
    still_open = sa.text("state IN ('pending', 'leased')")
    # Counts the backlog of all accounts together: see runekeep_storage.jobs.backlog.
    op.create_index(
        "jobs_by_state",
        "jobs",
        ["kind", "state", "created_at"],
        sqlite_where=still_open,
        postgresql_where=still_open,
        # Operators of large tables have created it with CONCURRENTLY: see CHANGELOG.md.
        if_not_exists=True,
    )
    # Which servers may work on this schema: one row, written by runekeep_storage.migrations.migrate.
    op.create_table(
        "store_schema",
        sa.Column("revision", TEXT, nullable=False),
        _text("compatible_from"),
        sa.PrimaryKeyConstraint("revision"),
        **rowless,
    )
    op.create_table(
        "api_keys",
        sa.Column("key_id", TEXT, nullable=False),
        _text("scope"),
        # Empty for the scopes admin and worker; the user is also empty for the scope account.
        _text("account"),
        _text("user_id"),
        _text("label"),
        # SHA-256 of the secret, in hexadecimal digits: the secret has 256 random bits, so no slower hash is needed.
        _text("digest"),
        # The secret before a rotation, accepted until then.
        _text("previous_digest"),
        _number("previous_until"),
        _number("created_at"),
        # NULL: never.
        _number("expires_at", None),
        _number("revoked_at", None),
        _number("rotated_at", None),
        # Accurate to the hour.
        _number("used_at", None),
        # Request id of the call that created it; NULL: it had none.
        _text("request_id", None),
        sa.PrimaryKeyConstraint("key_id"),
        **rowless,
    )
    op.create_index("api_keys_by_request", "api_keys", ["request_id"], unique=True)
    op.create_index("api_keys_by_time", "api_keys", ["created_at", "key_id"])
    op.create_table(
        "audit_events",
        sa.Column(
            "sequence", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(always=False), nullable=False
        ),
        _number("created_at"),
        _text("method"),
        _text("actor"),
        _text("scope"),
        _text("account"),
        _text("user_id"),
        _text("subject"),
        # Empty while the call is running.
        _text("code"),
        _text("trace_id"),
        _text("peer"),
        sa.PrimaryKeyConstraint("sequence"),
    )
    op.create_index("audit_events_by_account", "audit_events", ["account", "sequence"])
    op.create_index("audit_events_by_time", "audit_events", ["created_at"])
    op.create_table(
        "account_limits",
        sa.Column("account", TEXT, nullable=False),
        # NULL: the value of the settings. 0: no limit.
        sa.Column("calls_per_second", sa.Double, nullable=True),
        _number("concurrent_calls", None),
        _number("streams", None),
        _number("stored_bytes", None),
        _number("daily_tokens", None),
        _number("updated_at"),
        sa.PrimaryKeyConstraint("account"),
        **rowless,
    )
    op.create_table(
        "account_usage",
        sa.Column("account", TEXT, nullable=False),
        _number("users"),
        _number("sessions"),
        _number("messages"),
        _number("memories"),
        _number("stored_bytes"),
        _number("counted_at"),
        sa.PrimaryKeyConstraint("account"),
        **rowless,
    )
    # The contents of each space when it had that mark, see runekeep_storage.accounts.usage_stats. The usage of an
    # account is their sum.
    op.create_table(
        "space_usage",
        sa.Column("account", TEXT, nullable=False),
        sa.Column("user_id", TEXT, nullable=False),
        _text("mark"),
        _number("sessions"),
        _number("messages"),
        _number("memories"),
        _number("stored_bytes"),
        sa.PrimaryKeyConstraint("account", "user_id"),
        **rowless,
    )
    # One row: when all accounts must be counted next, by one of the servers.
    op.create_table(
        "usage_counts",
        _number("slot"),
        _number("due_at"),
        sa.PrimaryKeyConstraint("slot"),
        **rowless,
    )
