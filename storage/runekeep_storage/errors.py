"""Errors of the store. Callers map them to responses; none carries message content."""


class StoreError(Exception):
    """Base of all errors of the store."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or written to right now; the same call may succeed later."""


class BlobsUnavailable(StoreUnavailable):
    """Blobs cannot be read or written right now. Work that needs no blobs continues."""


class StoreReadOnly(StoreUnavailable):
    """The store can be read, but takes no writes."""


class StoreUnreachable(StoreUnavailable):
    """The store did not answer within the time that a start waits for it. A later start may succeed."""


class DeadlinePassed(StoreError):
    """Nobody waits for the call any more, so its work was not started or was abandoned."""

    def __init__(self, what: str = "the call's deadline is past") -> None:
        super().__init__(what)


class SpaceBusy(StoreUnavailable):
    """A deletion or an import of one user blocks the call for a short time. The store itself serves."""


class SpaceShut(SpaceBusy):
    """The user is being deleted. Calls succeed again when all of the user's data is gone."""

    def __init__(self, user: str) -> None:
        super().__init__(f"user {user} is being deleted")
        self.user = user


class SpaceChanged(StoreError):
    """Data of the user was deleted while the space was read page by page."""

    def __init__(self, user: str) -> None:
        super().__init__(f"data of user {user} was deleted or erased meanwhile")
        self.user = user


class SpaceNotEmpty(StoreError):
    """The user already has data."""

    def __init__(self, user: str) -> None:
        super().__init__(f"user {user} has sessions, memories or tasks")
        self.user = user


class ImportLost(SpaceBusy):
    """The import was considered dead, and its data is being deleted."""


class DataDamaged(StoreError):
    """Stored bytes differ from what was written. Only a backup can restore them."""

    def __init__(self, kind: str, name: str, problem: str = "") -> None:
        """`kind`: `blob` or `database`."""
        super().__init__(f"{kind} {name} is damaged{problem and ': '}{problem}")
        self.kind = kind
        self.name = name


class BlobDamaged(DataDamaged):
    """A blob differs from what was stored under its name; `size`: the bytes that it has now."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__("blob", name)
        self.size = size


class DatabaseDamaged(DataDamaged, StoreUnavailable):
    """The database is damaged. Callers get an error; background work waits, as it does while the store is
    unavailable."""

    def __init__(self, name: str = "of the store", problem: str = "") -> None:
        super().__init__("database", name, problem)


class DataDirectoryInUse(StoreError):
    """Another server process uses this data directory."""


class StoreLost(StoreError):
    """The store vanished, went back in time, or does not belong to the index and the blobs. The message tells operators
    what was found and what to do."""


class DataDirectoryUnusable(StoreError):
    """This process cannot create, open or write to the data directory or its lock."""


class DatabaseInUse(StoreError):
    """Another process owns this database file, possibly under another name."""


class IndexHeld(StoreError):
    """Another server on this store fills an index that this server cannot see, or cannot see this server's index."""


class NotFound(StoreError):
    """The caller's space has nothing of that name."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"no {kind} named {name}")
        self.kind = kind
        self.name = name


class AlreadyExists(StoreError):
    """The name is taken."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"a {kind} named {name} exists")
        self.kind = kind
        self.name = name


class VersionConflict(StoreError):
    """A memory is not at the version that the change is based on."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} changed meanwhile")
        self.uri = uri


class LeaseLost(StoreError):
    """The lease (job_id, fencing token) is no longer held."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the lease of job {job_id} is not held")
        self.job_id = job_id


class WrongTaskState(StoreError):
    """The task is not in a state that allows the operation."""

    def __init__(self, task_id: str, state: str) -> None:
        super().__init__(f"task {task_id} is {state}")
        self.task_id = task_id
        self.state = state


class RequestReused(StoreError):
    """A request id came again with another body."""


class BacklogFull(StoreError):
    """The user has as many open tasks of that kind as are allowed."""

    def __init__(self, open_tasks: int) -> None:
        super().__init__(f"{open_tasks} tasks of that kind are open")
        self.open_tasks = open_tasks


class TooManyQuestions(StoreError):
    """The user has as many questions under way as are allowed."""

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} questions are under way")
        self.most = most


class TooManyReactions(StoreError):
    """The turn already has the maximum number of reactions of machines."""

    def __init__(self, turn_id: str, most: int) -> None:
        super().__init__(f"turn {turn_id} has {most} reactions of machines")
        self.turn_id = turn_id
        self.most = most


class FingerprintTooLong(StoreError):
    """The fingerprint of a turn, merged with what is stored, would exceed the maximum size."""

    def __init__(self, turn_id: str, size: int, most: int) -> None:
        super().__init__(f"the fingerprint of turn {turn_id} would have {size} bytes")
        self.turn_id = turn_id
        self.size = size
        self.most = most
