"""Adds indexes that give the newest and the most used memories of a directory, however many it holds.

It only adds indexes, so servers of the release before may go on while this migration is applied.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0011"
down_revision = "r0010"
compatible_from = "r0009"

# The directory of a URI, with its slash: what is left when all behind the last slash is cut off. As in
# `storage.directories`: an index is used for the very expression alone.
DIRECTORY = sa.text("rtrim(uri, replace(uri, '/', ''))")


def upgrade() -> None:
    current = sa.text("rev_to = 0")
    # For a large table, operators create these indexes beforehand: see CHANGELOG.md.
    op.create_index(
        "memories_by_directory",
        "memories",
        ["account", "user_id", DIRECTORY, sa.text("updated_at DESC"), "uri"],
        sqlite_where=current,
        postgresql_where=current,
        if_not_exists=True,
    )
    op.create_index(
        "active_counts_by_directory",
        "active_counts",
        ["account", "user_id", DIRECTORY, sa.text("uses DESC"), "uri"],
        if_not_exists=True,
    )
