"""Derives point ids in the index: the same row always gives the same point, and no other row ever does.

A write may therefore be repeated, and a removal may come late: it removes only the point that it means.
"""

from uuid import UUID, uuid5

from runekeep_storage.database import Space

_NAMESPACE = UUID("6b1f2a0e-5f3d-4f0e-9d0c-7a1f6a4e2c11")


def memory_point(space: Space, uri: str, revision: int) -> str:
    """Returns the id of a version's immutable point, derived from the revision that made it. The version number would
    not do: after a user was deleted and begins again, the URI counts from 1 again, and the late removal of an old point
    would remove a new one. Revisions of a space never repeat."""
    return str(uuid5(_NAMESPACE, f"memory|{space.account}|{space.user}|{uri}|{revision}"))


def passage_point(space: Space, task_id: str, sequence: int) -> str:
    """Returns the point id of a message archived by the commit `task_id`. The session's name would not do: a session
    deleted and created again counts its messages from 1, and the removal of the old points would remove the new
    ones."""
    return str(uuid5(_NAMESPACE, f"passage|{space.account}|{space.user}|{task_id}|{sequence}"))
