"""Errors of the store. Callers turn them into answers; none carries message content."""


class StoreError(Exception):
    """Base of all errors of the store."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or written to right now; the same call may go through later."""


class BlobsUnavailable(StoreUnavailable):
    """Blobs cannot be read or written right now. Work that needs no blobs goes on."""


class StoreReadOnly(StoreUnavailable):
    """The store can be read, but takes no writes."""


class StoreUnreachable(StoreUnavailable):
    """The store did not answer within the time that a start waits for it. A later start may find it."""


class DeadlinePassed(StoreError):
    """Nobody waits for the call any more, so that its work was not begun, or was left."""

    def __init__(self, what: str = "the call's deadline is past") -> None:
        super().__init__(what)


class SpaceBusy(StoreUnavailable):
    """The store serves; what one user had deleted or imported is in the way, and will not be for long."""


class SpaceShut(SpaceBusy):
    """The user is being deleted; calls go through again when all that there was is gone."""

    def __init__(self, user: str) -> None:
        super().__init__(f"user {user} is being deleted")


class SpaceChanged(StoreError):
    """Data of the user was taken away while the space was read bit by bit."""

    def __init__(self, user: str) -> None:
        super().__init__(f"data of user {user} was deleted or erased meanwhile")
        self.user = user


class SpaceNotEmpty(StoreError):
    """The user has something already."""

    def __init__(self, user: str) -> None:
        super().__init__(f"user {user} has sessions, memories or tasks")
        self.user = user


class ImportLost(SpaceBusy):
    """The import was taken to be dead, and what it had made is being taken away."""


class DataDamaged(StoreError):
    """Stored bytes are not what was written. Only a backup can bring them back."""

    def __init__(self, kind: str, name: str, problem: str = "") -> None:
        """`kind`: `blob` or `database`."""
        super().__init__(f"{kind} {name} is damaged{problem and ': '}{problem}")
        self.kind = kind
        self.name = name


class BlobDamaged(DataDamaged):
    """A blob is not what was stored under its name; `size`: bytes that are there."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__("blob", name)
        self.size = size


class DatabaseDamaged(DataDamaged, StoreUnavailable):
    """The database is damaged. Callers get an error; background work waits, as while the store is away."""

    def __init__(self, name: str = "of the store", problem: str = "") -> None:
        super().__init__("database", name, problem)


class DataDirectoryInUse(StoreError):
    """Another server process works on this data directory."""


class StoreLost(StoreError):
    """The store vanished, went back in time, or is not the one that the index and the blobs belong to. The message
    tells operators what was found and what to do."""


class DataDirectoryUnusable(StoreError):
    """This process cannot create, open or write to the data directory or its lock."""


class DatabaseInUse(StoreError):
    """Another process owns this database file, possibly by another name."""


class IndexHeld(StoreError):
    """Another server on this store fills an index that this one cannot see, or would not see this one's."""


class NotFound(StoreError):
    """Nothing of that name in the caller's space."""

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
    """A memory is not at the version that the change was prepared on."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} changed meanwhile")
        self.uri = uri


class LeaseLost(StoreError):
    """The lease (job_id, fencing token) is not held any more."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the lease of job {job_id} is not held")
        self.job_id = job_id


class WrongTaskState(StoreError):
    """The task is not in a state in which this can be done."""

    def __init__(self, task_id: str, state: str) -> None:
        super().__init__(f"task {task_id} is {state}")
        self.task_id = task_id
        self.state = state


class RequestReused(StoreError):
    """A request id came back with another body."""


class BacklogFull(StoreError):
    """The user has as many open tasks of a kind as are allowed."""

    def __init__(self, open_tasks: int) -> None:
        super().__init__(f"{open_tasks} tasks of that kind are open")
        self.open_tasks = open_tasks


class TooManyReactions(StoreError):
    """The turn has as many reactions of machines as are kept."""

    def __init__(self, turn_id: str, most: int) -> None:
        super().__init__(f"turn {turn_id} has {most} reactions of machines")
        self.turn_id = turn_id
        self.most = most


class FingerprintTooLong(StoreError):
    """What is said of a turn is longer than is kept, together with what was said before."""

    def __init__(self, turn_id: str, size: int, most: int) -> None:
        super().__init__(f"the fingerprint of turn {turn_id} would have {size} bytes")
        self.turn_id = turn_id
        self.size = size
        self.most = most
