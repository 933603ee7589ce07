"""Maps errors of the store, the index, the embedder and the memory types to errors that callers see."""

from runekeep_schemas.documents.merge import MergeError
from runekeep_schemas.memory_types.coerce import FieldError
from runekeep_schemas.policy import PolicyError
from runekeep_server.protocol import errors
from runekeep_server.protocol.api_error import ApiError
from runekeep_storage.embedders import EmbedderUnavailable
from runekeep_storage.errors import (
    AlreadyExists,
    BacklogFull,
    BlobsUnavailable,
    DataDamaged,
    DeadlinePassed,
    FingerprintTooLong,
    LeaseLost,
    NotFound,
    RequestReused,
    SpaceChanged,
    SpaceNotEmpty,
    SpaceShut,
    StoreReadOnly,
    StoreUnavailable,
    TooManyQuestions,
    TooManyReactions,
    VersionConflict,
    WrongTaskState,
)
from runekeep_storage.index.base import IndexUnavailable
from runekeep_storage.search.requests import SearchUnanswerable

_TODO = {
    "API key": "See ListApiKeys, with include_ended for those that have ended",
    "session": "Create it, or get it with auto_create",
    "memory": "List its directory to see what is there",
    "archive": "List the archives of its session",
    "revision": "See ListRevisions",
    "task": "Use the task_id that the call gave which queued it",
    "proposal": "See ListProposals; one is deleted with its task or session",
    "turn": "Add a message that carries the turn_id first; ListTurns names the turns of a session",
    "bucket": "Take its id from ListMemoryBuckets",
    "request": "What it had done was deleted with its session or user; to do it anew, use a new request_id",
}


def as_api_error(error: Exception) -> ApiError | None:
    """Returns the ApiError for an expected error, or None for an unexpected one."""
    match error:
        case NotFound():
            return errors.not_found(error.kind, error.name, _TODO.get(error.kind, ""))
        case AlreadyExists(kind="message"):
            return errors.already_exists("message", error.name, "Give every message an id of its own")
        case AlreadyExists():
            return errors.already_exists(error.kind, error.name)
        case RequestReused():
            return errors.request_id_reused(str(error))
        case BacklogFull():
            return errors.commit_backlog_full(error.open_tasks, retry_after=5.0)
        case TooManyQuestions():
            what = f"The user has {error.most} questions under way, which is the limit"
            return errors.rate_limited(what, 1.0, "max_open_questions_per_user")
        case TooManyReactions():
            what = f"The turn `{error.turn_id}` has {error.most} reactions of machines, as many as are kept"
            return errors.too_large(what, "Add no more to it")
        case FingerprintTooLong():
            what = f"has {error.size} bytes with what was said of the turn before, of at most {error.most}"
            return errors.invalid("fingerprint", what, "Say less")
        case WrongTaskState():
            return errors.task_state(error.task_id, error.state, "Read the task again")
        case LeaseLost():
            return errors.lease_lost(error.job_id)
        case DeadlinePassed():
            return errors.deadline_passed()
        case SpaceShut():
            return errors.space_busy()
        case SpaceNotEmpty():
            return errors.space_not_empty(error.user)
        case SpaceChanged():
            return errors.space_changed(error.user)
        case DataDamaged():
            return errors.data_damaged(error.kind)
        case BlobsUnavailable():
            return errors.unavailable("blobs", "The blob store cannot serve now")
        case StoreReadOnly():
            return errors.unavailable("store", "The store is read-only now and takes no writes")
        case StoreUnavailable():
            return errors.unavailable("store", "The store cannot serve now")
        case SearchUnanswerable():
            return errors.unavailable("index", str(error))
        case IndexUnavailable():
            return errors.unavailable("index", "The index cannot serve now")
        case EmbedderUnavailable():
            return errors.unavailable("embedder", "The embedder cannot serve now")
        case VersionConflict():
            return errors.unavailable("store", "A memory or a bucket changed meanwhile")
        case PolicyError():
            return errors.invalid("memory_policy", str(error), "See ListMemoryTypes")
        case MergeError() | FieldError():
            return errors.invalid(error.field or "fields", error.reason)
    return None
