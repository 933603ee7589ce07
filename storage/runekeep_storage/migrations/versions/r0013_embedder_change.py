"""Adds what a change of the embedder needs: a second vector for each memory and passage, the change itself, and which
spaces it has reached.

It only adds columns, indexes and a table, so servers of the release before may run while it is applied. They must not
run while the embedder is changed: they know of one vector only.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0013"
down_revision = "r0012"
compatible_from = "r0009"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=False, server_default="")


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def upgrade() -> None:
    # For large tables, operators create these columns and indexes beforehand: see CHANGELOG.md. SQLite has no IF NOT
    # EXISTS for columns.
    if_new = op.get_bind().dialect.name == "postgresql" or None
    for table, column, alive in (
        ("memories", "uri", " AND deleted = 0 AND rev_to = 0"),
        ("passages", "session_id", ""),
    ):
        # The vector by the new embedder. A model without a vector: the row waits for it.
        op.add_column(table, sa.Column("dense_next", sa.LargeBinary, nullable=True), if_not_exists=if_new)
        op.add_column(table, _text("dense_next_model"), if_not_exists=if_new)
        waiting = sa.text(f"dense_next IS NULL AND dense_next_model <> ''{alive}")
        op.create_index(
            f"{table}_waiting_for_next",
            table,
            ["account", "user_id", column],
            sqlite_where=waiting,
            postgresql_where=waiting,
            if_not_exists=True,
        )
    # Number of the change whose vectors the space has; searches use them.
    op.add_column("spaces", _number("embedder_change"), if_not_exists=if_new)
    op.create_index(
        "spaces_by_embedder_change", "spaces", ["embedder_change", "account", "user_id"], if_not_exists=True
    )
    op.create_table(
        "embedder_changes",
        # One row, 0.
        sa.Column("slot", sa.BigInteger, primary_key=True, autoincrement=False),
        # Grows with each change.
        _number("number"),
        _text("state"),
        # The settings' names of both embedders, the models and the dimensions of their vectors.
        _text("source_name"),
        _text("source_model"),
        _number("source_dimension"),
        _text("name"),
        _text("model"),
        _number("dimension"),
        # Rows that get vectors a second at most; 0: no bound.
        _number("rows_per_second"),
        _number("started_at"),
        # Since when it has been in its state.
        _number("state_at"),
        # How many rows there were to do, -1 before they were counted, and how many are done.
        _number("total_rows"),
        _number("done_rows"),
        # Rows that got vectors per hour, recently.
        _number("rows_per_hour"),
        # The server that makes the vectors, and until when no other does.
        _text("holder"),
        _number("held_until"),
        # What stops it now, in words for operators; empty: nothing.
        _text("problem"),
    )
