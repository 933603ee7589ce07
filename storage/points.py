"""Names of points in the index: the same row always gives the same point, and no other row ever does.

So a write may be repeated, and a removal may come as late as it likes: it takes no point but the one that it means.
"""

from uuid import UUID, uuid5

from storage.database import Space

_NAMESPACE = UUID("6b1f2a0e-5f3d-4f0e-9d0c-7a1f6a4e2c11")


def memory_point(space: Space, uri: str, revision: int) -> str:
    """One immutable point a version, named by the revision that made it. The version's number would not do: when its
    user is deleted and begins again the URI counts from 1 again, and the late removal of an old point would take a new
    one. Revisions of a space never repeat."""
    return str(uuid5(_NAMESPACE, f"memory|{space.account}|{space.user}|{uri}|{revision}"))


def passage_point(space: Space, task_id: str, sequence: int) -> str:
    """One point a message that the commit `task_id` archived. A session's name would not do: a session deleted and made
    anew counts its messages from 1 again, and the removal of the old points would take the new ones."""
    return str(uuid5(_NAMESPACE, f"passage|{space.account}|{space.user}|{task_id}|{sequence}"))
