"""A memory as a document: its URI and file name, its text, and how it takes new values."""
