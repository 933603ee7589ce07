"""A user's space as a tree of documents: what lies where, whether a row or derived from rows."""
