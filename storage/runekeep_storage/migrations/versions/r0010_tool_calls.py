"""Adds to each message the names of its tool calls, so that the calls of a session can be listed and read by name.

It only adds a column and an index, so servers of the previous release may run while it is applied.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0010"
down_revision = "r0009"
compatible_from = "r0009"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    # A JSON list; an empty text for no calls. NULL in messages that older servers wrote: their parts must be read, see
    # runekeep_storage.sessions.tool_calls.
    # For a large table, operators make both beforehand: see CHANGELOG.md. SQLite has no IF NOT EXISTS for columns.
    on_postgres = op.get_bind().dialect.name == "postgresql"
    op.add_column("messages", sa.Column("calls", TEXT, nullable=True), if_not_exists=on_postgres or None)
    holding = sa.text("calls <> '' OR calls IS NULL AND parts LIKE '%\"tool\"%'")
    op.create_index(
        "messages_with_calls",
        "messages",
        # For `sequence` itself SQLite chooses the primary key, and so reads all messages.
        ["account", "user_id", "session_id", sa.text("(sequence + 0)")],
        sqlite_where=holding,
        postgresql_where=holding,
        if_not_exists=True,
    )
