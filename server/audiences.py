"""Declares who may call each RPC. A method that is not declared here is refused."""

from collections.abc import Mapping
from typing import Final

from server.identity import Audience

_PACKAGE: Final = "/runekeep.v1."
_DECLARED: Final = {
    Audience.USERS: {
        "SessionService": (
            "CreateSession GetSession ListSessions UpdateSession GetSessionContext DeleteSession AddMessages"
            " ListMessages RecordUsage CommitSession ListArchives GetMemoryDiff"
        ),
        "MemoryService": (
            "GetMemory ReadDocument ListDirectory GlobDocuments GrepDocuments Recall FindMemories ListMemoryVersions"
            " WriteMemories DeleteUser ListMemoryTypes"
        ),
        "HistoryService": "ListRevisions DiffRevisions RollbackRevision ListMessageMemories",
        "TaskService": "GetTask ListTasks WatchTask CancelTask RetryTask GetExtractionRecord GetUsage",
        "TurnMemoryService": (
            "SubmitTurn GetTurn ListTurns LoadTurnContext SetTurnSelection ListAssistantSignals SubmitFeedback"
            " ClearFeedback ListFeedback ListTurnArtifacts ListMemoryBuckets UpdateMemoryBucket ReconcileMemoryBuckets"
        ),
        "SpaceService": "ExportSpace ImportSpace EraseData GetErasure ListErasures",
    },
    Audience.WORKERS: {"ExtractorService": "Work GetJobInput ReadForJob ListForJob FindForJob EmbedForJob"},
    Audience.ADMINS: {
        "AdminService": (
            "CreateApiKey ListApiKeys RotateApiKey RevokeApiKey ListAccounts UpdateAccountLimits ListAuditEvents"
            " GetServerStatus"
        ),
    },
}
AUDIENCES: Final[Mapping[str, Audience]] = {
    f"{_PACKAGE}{service}/{method}": audience
    for audience, services in _DECLARED.items()
    for service, methods in services.items()
    for method in methods.split()
}
"""By full method name, such as `/runekeep.v1.SessionService/CreateSession`."""
INTERNAL_SERVICES: Final = frozenset(
    name[1:].partition("/")[0] for name, audience in AUDIENCES.items() if audience is not Audience.USERS
)
"""Full names of the services for workers and operators. If `internal_address` is set, only that address serves them."""
WITHOUT_CREDENTIALS: Final = frozenset(
    {
        *(f"/grpc.health.v1.Health/{method}" for method in ("Check", "List", "Watch")),
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    }
)
"""Full names of the methods that need no credentials, see `server.interceptors.open_calls`."""
