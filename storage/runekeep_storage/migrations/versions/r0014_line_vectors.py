"""Adds the vectors of the lines of memories. They are in the rows of the memories, so they are erased, superseded and
dropped with them.

It only adds columns and an index, so servers of the release before may run while it is applied.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0014"
down_revision = "r0013"
compatible_from = "r0009"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    # For a large table, operators create these beforehand: see CHANGELOG.md. SQLite has no IF NOT EXISTS for columns.
    if_new = op.get_bind().dialect.name == "postgresql" or None
    model = sa.Column("line_vectors_model", TEXT, nullable=False, server_default="")
    op.add_column("memories", model, if_not_exists=if_new)
    # Packed, see runekeep_storage.indexing.line_vectors. The longest column comes last: SQLite reads a row up to the
    # last column that it needs.
    op.add_column("memories", sa.Column("line_vectors", sa.LargeBinary, nullable=True), if_not_exists=if_new)
    waiting = sa.text("line_vectors IS NULL AND dense IS NOT NULL AND deleted = 0 AND rev_to = 0")
    op.create_index(
        "memories_without_lines",
        "memories",
        ["account", "user_id", "uri"],
        sqlite_where=waiting,
        postgresql_where=waiting,
        if_not_exists=True,
    )
