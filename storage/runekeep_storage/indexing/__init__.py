"""Prepares what is written to the index: the outbox, points from rows, passages, and the embedder of each space."""
