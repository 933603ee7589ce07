"""Adds the operations of commits that wait for review.

It only adds a table, so servers of the previous release may run while it is applied.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0012"
down_revision = "r0011"
compatible_from = "r0009"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _key(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, TEXT, nullable=False) for name in names]


def _text(name: str, default: str = "") -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=False, server_default=default)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def upgrade() -> None:
    op.create_table(
        "proposals",
        *_key("account", "user_id", "task_id", "session_id"),
        _number("archive_index"),
        # The plan of the commit and its extractor, as JSON: the job of an imported task does not exist.
        _text("plan", "{}"),
        _text("extractor", "{}"),
        # A JSON list; decided operations have no text.
        _text("operations", "[]"),
        _number("open_count"),
        _number("open_bytes"),
        # The newest revision of which an operation may quote memories.
        _number("revision"),
        # Counts its changes.
        _number("edition"),
        _number("created_at"),
        sa.PrimaryKeyConstraint("account", "user_id", "task_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("proposals_by_time", "proposals", ["account", "user_id", sa.text("created_at DESC"), "task_id"])
    op.create_index("proposals_by_session", "proposals", ["account", "user_id", "session_id"])
