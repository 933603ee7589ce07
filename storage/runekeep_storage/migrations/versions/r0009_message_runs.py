"""Stores the messages that memories came from as runs: one row for consecutive messages instead of one for each.

It merges the existing rows in SQL: the database sorts on disk, so a store of any size needs little memory.

Running servers of the previous release continue, and find the rows that they write. They do not find the memories that
came from a message inside a run, so they must not erase messages, and cannot be restarted on this schema.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0009"
down_revision = "r0004"
compatible_from = "r0009"

BLOCK = 16_384
"""As in `runekeep_storage.memories.origins`."""

_KEY = "account, user_id, session_id"
# A row whose session or message does not exist has no sequence and stays separate.
_FOLD = f"""
CREATE TABLE message_runs AS
WITH numbered AS (
  SELECT s.account, s.user_id, s.session_id, s.message_id, s.uri, s.version, m.sequence, x.created_at,
    m.sequence - ROW_NUMBER() OVER (
      PARTITION BY s.account, s.user_id, s.session_id, s.uri, s.version, m.sequence / {BLOCK} ORDER BY m.sequence
    ) AS run
  FROM memory_sources s
  LEFT JOIN sessions x ON x.account = s.account AND x.user_id = s.user_id AND x.session_id = s.session_id
  LEFT JOIN messages m ON m.account = x.account AND m.user_id = x.user_id AND m.session_id = x.session_id
    AND m.message_id = s.message_id
)
SELECT {_KEY}, uri, version, COALESCE(MIN(sequence), 0) AS first_sequence, COALESCE(MAX(sequence), 0) AS last_sequence,
  CASE WHEN MIN(sequence) IS NULL THEN 0 ELSE MIN(created_at) END AS created_at, MIN(message_id) AS message_id
FROM numbered
GROUP BY {_KEY}, uri, version, sequence / {BLOCK}, run, CASE WHEN sequence IS NULL THEN message_id END
"""
_BACK = f"""
INSERT INTO memory_sources
  ({_KEY}, message_id, uri, version, first_sequence, last_sequence, session_created_at)
SELECT r.account, r.user_id, r.session_id, COALESCE(m.message_id, r.message_id), r.uri, r.version, r.first_sequence,
  r.last_sequence, r.created_at
FROM message_runs r
LEFT JOIN messages m ON m.account = r.account AND m.user_id = r.user_id AND m.session_id = r.session_id
  AND m.sequence = r.first_sequence
"""


def upgrade() -> None:
    on_postgres = op.get_bind().dialect.name == "postgresql"
    # Sequences of the first message, whose id is `message_id`, and of the last one. 0: unknown; the row is then about
    # that message only. `erased`: how many messages between them were erased before the row was written.
    for name in ("first_sequence", "last_sequence", "session_created_at", "erased"):
        op.add_column("memory_sources", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.execute(_FOLD)
    op.execute("TRUNCATE memory_sources" if on_postgres else "DELETE FROM memory_sources")
    op.execute(_BACK)
    op.execute("DROP TABLE message_runs")
    op.create_index(
        "memory_sources_by_sequence",
        "memory_sources",
        ["account", "user_id", "session_id", "first_sequence", "last_sequence"],
    )
