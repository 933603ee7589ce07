"""Adds lease holders, the workers that lost a job, the standings of workers, and the accounts of worker keys.

It only adds columns and a table, so servers of the release before may run while it is applied.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0004"
down_revision = "r0003"
compatible_from = "r0001"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _text(name: str, default: str | None = "") -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=default is None, server_default=default)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def upgrade() -> None:
    # The lease that the next two columns belong to: a server of the release before increments lease_epoch and leaves
    # them unchanged.
    op.add_column("jobs", _number("bound_epoch"))
    # For a large table, operators create this column and its index beforehand: see CHANGELOG.md. SQLite has no IF NOT
    # EXISTS here.
    on_postgres = op.get_bind().dialect.name == "postgresql"
    op.add_column("jobs", _text("lease_holder"), if_not_exists=on_postgres or None)
    # SHA-256 of the lease's secret, in hexadecimal digits; empty: the holder's name is enough.
    op.add_column("jobs", _text("lease_digest"))
    # JSON: which workers lost the job, and how often that counts; see runekeep_storage.jobs.worker_records.
    op.add_column("jobs", _text("lost_by"))
    leased = sa.text("state = 'leased'")
    op.create_index(
        "jobs_by_holder",
        "jobs",
        ["lease_holder", "worker_id"],
        sqlite_where=leased,
        postgresql_where=leased,
        if_not_exists=True,
    )
    # JSON list; empty: all accounts.
    op.add_column("api_keys", _text("accounts"))
    op.create_table(
        "workers",
        # The worker's principal and its own name; an empty name stands for all workers of the principal.
        sa.Column("holder", TEXT, nullable=False),
        sa.Column("worker_id", TEXT, nullable=False),
        _number("seen_at"),
        # When it last completed a job; exact only for the first job of each stream.
        _number("worked_at"),
        # JSON list of the jobs that it lost most recently.
        _text("lost"),
        _number("pauses"),
        _number("paused_until"),
        # JSON list of the accounts whose jobs it may get; empty: all.
        _text("accounts"),
        sa.PrimaryKeyConstraint("holder", "worker_id"),
        sqlite_with_rowid=False,
    )
    lost = sa.text("lost <> ''")
    op.create_index("workers_that_lost", "workers", ["seen_at"], sqlite_where=lost, postgresql_where=lost)
