"""The SQL statements of the identity of the store, one sentence each.

The store has one row, under an account that no caller has.
"""

from typing import Final

OVER_ALL_ACCOUNTS: Final = frozenset[str]()
"""Statements on tables of accounts that read or change rows of any account."""

_COLUMNS: Final = "store_id, revision, former_ids, has_marked_blobs"

GIVE_ID = "INSERT INTO store_identity (account, store_id, file_id) VALUES ($1, $2, $2) ON CONFLICT (account) DO NOTHING"
"""Gives an id to a store that has none."""

STATE = f"SELECT {_COLUMNS} FROM store_identity WHERE account = $1"
"""Reads the identity and the revision of the store."""

ADVANCE = (
    "UPDATE store_identity SET revision = revision + 1 WHERE account = $1 AND store_id = $2 AND revision >= $3"
    f" RETURNING {_COLUMNS}"
)
"""Raises the revision of a store with an id, if it is at least $3."""

RENEW = "UPDATE store_identity SET store_id = $2, former_ids = $3, has_marked_blobs = 0 WHERE account = $1"
"""Gives the store a new id; it takes over the marks of former ones."""

SET_RESTORED = (
    "INSERT INTO store_identity (account, store_id, file_id, former_ids) VALUES ($1, $2, $2, $3)"
    " ON CONFLICT (account) DO UPDATE SET store_id = excluded.store_id, file_id = excluded.file_id,"
    " former_ids = excluded.former_ids, has_marked_blobs = 0"
)
"""Gives a restored store a new id, and its file as well."""

FORGET_FORMER = "UPDATE store_identity SET former_ids = '' WHERE account = $1 AND store_id = $2"
"""Ends that a store takes over marks of former ones."""

SET_BLOBS_MARKED = "UPDATE store_identity SET has_marked_blobs = 1 WHERE account = $1 AND store_id = $2"
"""Stores that the blobs carry the mark of a store."""
