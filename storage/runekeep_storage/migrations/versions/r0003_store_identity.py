"""Adds the identity of the store and its revision, to detect a store that vanished or went back in time.

It only adds a table, so servers of the release before may run while it is applied.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0003"
down_revision = "r0002"
compatible_from = "r0002"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "store_identity",
        # One row, of no account. The first server writes it, so two copies of an empty store become different stores.
        sa.Column("account", TEXT, nullable=False, server_default=""),
        sa.Column("store_id", TEXT, nullable=False, server_default=""),
        # Id of the database itself. It stays when a loss is accepted, and changes in a restore. See
        # runekeep_storage.drivers.sqlite.wal_check.
        sa.Column("file_id", TEXT, nullable=False, server_default=""),
        # Grows while the store is written to, see runekeep_storage.identity.store_identity.
        sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"),
        # Ids, separated by commas, of the stores whose marks this store takes over.
        sa.Column("former_ids", TEXT, nullable=False, server_default=""),
        # 1 once the blobs carry a mark. From then on, blobs without a mark are refused.
        sa.Column("has_marked_blobs", sa.SmallInteger, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("account"),
        sqlite_with_rowid=False,
    )
