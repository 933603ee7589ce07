"""Chat transcripts from files, as batches of messages that are committed one by one."""
