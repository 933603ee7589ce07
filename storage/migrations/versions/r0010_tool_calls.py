"""Adds to each message the names of its tool calls, so that the calls of a session can be listed and read by name.

It only adds a column, so servers of the release before may go on while this migration is applied.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0010"
down_revision = "r0009"
compatible_from = "r0009"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    # JSON list, empty text for none. NULL where nobody has looked: in messages of before, and of servers of the release
    # before, whose parts tell it. See storage.tool_calls.
    op.add_column("messages", sa.Column("calls", TEXT, nullable=True))
