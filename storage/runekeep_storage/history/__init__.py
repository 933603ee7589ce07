"""The history of a space's memories, and the data for rollbacks."""
