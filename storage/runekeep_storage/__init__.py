"""The store: relational drivers, vector index and embedders."""
