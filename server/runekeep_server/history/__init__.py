"""HistoryService: revisions, past states of memories, rollback."""
