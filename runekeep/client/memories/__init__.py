"""Memories: documents, search, recall, changes made by hand."""
