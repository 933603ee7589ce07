"""The identity and the revision of a store, which reveal that a store vanished or went back in time.

A store has a random id and a revision. The revision grows once a second while the store is written to, in a transaction
of its own, so that no commit pays for it. The index and the blobs, which lie beside the store, carry a mark: the id and
the highest revision that was committed when the mark was written. A mark is therefore never ahead of its store, unless
the store lost committed data.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from runekeep_storage.accounts import audit
from runekeep_storage.accounts.audit import Call
from runekeep_storage.database import Row, Tx
from runekeep_storage.identity import statements

STORE_ACCOUNT = ""
"""The account of the row. No caller has this account, so transactions on the row block few others."""

ANY_STORE = "*"


@dataclass(frozen=True, slots=True)
class StoreState:
    """Id and revision of a store. It takes over the marks of `former_ids`: stores that it was restored from, or whose
    loss was accepted. ANY_STORE among them stands for all. `has_marked_blobs`: its blobs have been marked with its id.
    """

    store_id: str
    revision: int
    former_ids: tuple[str, ...] = ()
    has_marked_blobs: bool = False

    def takes_over(self, store_id: str) -> bool:
        return store_id in self.former_ids or ANY_STORE in self.former_ids


@dataclass(frozen=True, slots=True)
class StoreMark:
    """The store that the index or the blobs belong to, and its revision at `written_at`, microseconds since 1970."""

    store_id: str
    revision: int
    written_at: int

    def to_text(self) -> str:
        return json.dumps({"store": self.store_id, "revision": self.revision, "written_at": self.written_at})

    @classmethod
    def from_text(cls, text: str) -> "StoreMark":
        """Raises ValueError for text that is no mark."""
        try:
            value = json.loads(text)
            return cls(str(value["store"]), int(value["revision"]), int(value["written_at"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a mark of a store: {text[:200]!r}") from error


async def ensure(tx: Tx, account: str, store_id: str) -> StoreState:
    """Returns the state of the store; a store without an id gets this one."""
    await tx.ensure_durable()
    await tx.execute(statements.GIVE_ID, account, store_id)
    return await state(tx)


async def state(tx: Tx) -> StoreState:
    """Returns the state of the store, over all accounts; the id is empty if the store has none yet."""
    row = await tx.fetchrow(statements.STATE, STORE_ACCOUNT)
    return _state(row) if row is not None else StoreState("", 0)


async def advance(tx: Tx, account: str, store_id: str, at_least: int) -> StoreState | None:
    """Raises the revision by one and returns the new state of the store. Returns None and changes nothing for another
    store, or one whose revision is below `at_least`."""
    # A mark must not be ahead of the state that a crash leaves.
    await tx.ensure_durable()
    row = await tx.fetchrow(statements.ADVANCE, account, store_id, at_least)
    return _state(row) if row is not None else None


async def renew(tx: Tx, store_id: str, former_ids: Sequence[str], call: Call) -> StoreState:
    """Gives the store a new id, takes over the marks of `former_ids`, and writes `call` to the audit log."""
    await tx.ensure_durable()
    await tx.execute(statements.RENEW, STORE_ACCOUNT, store_id, ",".join(sorted(set(former_ids))))
    sequence = await audit.begin(tx, STORE_ACCOUNT, call)
    await audit.end(tx, STORE_ACCOUNT, sequence, "OK", call.subject)
    return await state(tx)


async def set_restored(tx: Tx, account: str, store_id: str) -> None:
    """Gives a newly restored store a new id. It takes over the marks of any store: of the one that was backed up, and
    of those that were restored from the same backup since."""
    await tx.ensure_durable()
    await tx.execute(statements.SET_RESTORED, account, store_id, ANY_STORE)


async def forget_former(tx: Tx, account: str, store_id: str) -> None:
    """Makes the store take over no more marks of other stores. Call it once all marks belong to this store."""
    await tx.execute(statements.FORGET_FORMER, account, store_id)


async def set_blobs_marked(tx: Tx, account: str, store_id: str) -> None:
    """Records that the blobs carry the mark of this store."""
    await tx.execute(statements.SET_BLOBS_MARKED, account, store_id)


def _state(row: Row) -> StoreState:
    former = tuple(filter(None, row["former_ids"].split(",")))
    return StoreState(row["store_id"], row["revision"], former, bool(row["has_marked_blobs"]))
