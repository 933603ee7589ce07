"""A user's space as a tree of documents, which are rows or derived from rows."""
