"""Commands that start server and extractors, and back up the store."""
