"""What is true and what is found: relational drivers, vector index and embedders."""
