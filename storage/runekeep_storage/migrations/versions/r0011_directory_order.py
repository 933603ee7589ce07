"""Adds indexes for the newest and the most used memories of a directory, however many it holds, and sets when sessions
that the release before left out commit as idle.

Servers of the revision before may run while it is applied.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0011"
down_revision = "r0010"
compatible_from = "r0009"

# The directory of a URI, with its slash: the URI without everything after the last slash. Identical to the expression
# in `runekeep_storage.memories.directories`, because an index serves only the very same expression.
DIRECTORY = sa.text("rtrim(uri, replace(uri, '/', ''))")
# The part after the directory. An index of the directory and the whole URI would hold the directory twice, and
# PostgreSQL refuses entries of more than 2,704 bytes.
NAME = sa.text("substr(uri, length(rtrim(uri, replace(uri, '/', ''))) + 1)")


def upgrade() -> None:
    current = sa.text("rev_to = 0")
    # For a large table, operators create these indexes beforehand: see CHANGELOG.md.
    op.create_index(
        "memories_by_directory",
        "memories",
        ["account", "user_id", DIRECTORY, sa.text("updated_at DESC"), NAME],
        sqlite_where=current,
        postgresql_where=current,
        if_not_exists=True,
    )
    op.create_index(
        "active_counts_by_directory",
        "active_counts",
        ["account", "user_id", DIRECTORY, sa.text("uses DESC"), NAME],
        if_not_exists=True,
    )
    # The release before never committed a session as idle while at most `keep_recent_count` messages were live.
    on_postgres = op.get_bind().dialect.name == "postgresql"
    idle = (
        "CAST(CAST(auto_commit AS json)->>'idle' AS bigint)" if on_postgres else "json_extract(auto_commit, '$.idle')"
    )
    op.execute(
        f"UPDATE sessions SET idle_at = said_at + {idle} WHERE idle_at = 0 AND last_sequence > archived_sequence"
        " AND auto_commit LIKE '%\"idle\"%'"
    )
