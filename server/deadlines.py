"""How long a call may take whose caller set no deadline."""

from server.settings import DeadlineSettings


def default_deadlines(settings: DeadlineSettings) -> dict[str, float | None]:
    """Seconds by full method name (`/runekeep.v1.SessionService/CommitSession`), None for calls that may last.

    Methods that are not in it have `settings.call_seconds`. The numbers by default are those of the contract.
    """
    named: dict[str, float | None] = {
        "SessionService/CommitSession": settings.commit_seconds,
        "SessionService/DeleteSession": settings.commit_seconds,
        "MemoryService/FindMemories": settings.find_seconds,
        "MemoryService/GrepDocuments": settings.find_seconds,
        "MemoryService/Recall": settings.find_seconds,
        "MemoryService/WriteMemories": settings.commit_seconds,
        "MemoryService/DeleteUser": settings.delete_user_seconds,
        "SpaceService/ExportSpace": None,
        "SpaceService/ImportSpace": None,
        "SpaceService/EraseData": settings.erase_data_seconds,
        "HistoryService/DiffRevisions": settings.find_seconds,
        "HistoryService/RollbackRevision": settings.commit_seconds,
        "TaskService/WatchTask": None,
        "TurnMemoryService/LoadTurnContext": settings.find_seconds,
        "TurnMemoryService/SubmitFeedback": settings.find_seconds,
        "TurnMemoryService/ListMemoryBuckets": settings.find_seconds,
        "ExtractorService/Work": None,
        "ExtractorService/GetJobInput": settings.job_input_seconds,
        "ExtractorService/FindForJob": settings.find_seconds,
        "ExtractorService/EmbedForJob": settings.embed_seconds,
        "AdminService/ListAuditEvents": settings.find_seconds,
        "AdminService/GetServerStatus": settings.find_seconds,
    }
    return {f"/runekeep.v1.{method}": seconds for method, seconds in named.items()}
