"""Adds to each message the names of its tool calls, so that the calls of a session can be listed and read by name.

It only adds a column, so servers of the previous release may run while it is applied.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0010"
down_revision = "r0009"
compatible_from = "r0009"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    # A JSON list; an empty text for no calls. NULL in messages that older servers wrote: their parts must be read, see
    # storage.tool_calls.
    op.add_column("messages", sa.Column("calls", TEXT, nullable=True))
