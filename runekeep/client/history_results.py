"""What calls about the history of memories answer: dicts that `json.dumps` takes as they are."""

from typing import Literal, TypedDict

OriginName = Literal["commit", "caller", "rollback", "erasure"]


class Revision(TypedDict):
    """`archive_uri` and `task_id` are of a commit, `rolled_back` is of a rollback: the revision that it took back.
    `rolled_back_by`: the newest revision that took this one back; 0: none."""

    number: int
    origin: OriginName
    archive_uri: str
    task_id: str
    rolled_back: int
    adds: int
    updates: int
    deletes: int
    create_time: str | None
    rolled_back_by: int


class ChangedMemory(TypedDict):
    """`before` and `after` are documents, empty where there is none; `version`: the one that the change made;
    `shortened`: they are too large for an answer, and are cut."""

    uri: str
    memory_type: str
    before: str
    after: str
    version: int
    shortened: bool


class RevisionDiff(TypedDict):
    """By URI, what differs between two revisions; `from_revision` 0: before the first one."""

    changes: list[ChangedMemory]
    from_revision: int
    to_revision: int


class RollbackConflict(TypedDict):
    """A memory that later revisions changed."""

    uri: str
    revisions: list[int]


class RolledBack(TypedDict):
    """`revision` 0: nothing was changed. `newest_revision`: of a preview. `texts_omitted`: changes may lack both texts,
    which would be too long together; `diff_revisions` has them. `changes_omitted` and `conflicts_omitted`: how many had
    no room even for their names."""

    revision: int
    changes: list[ChangedMemory]
    conflicts: list[RollbackConflict]
    newest_revision: int
    texts_omitted: bool
    changes_omitted: int
    conflicts_omitted: int
