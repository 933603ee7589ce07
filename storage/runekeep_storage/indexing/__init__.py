"""Keeps the index up to date: the outbox, the relay, passages, missing vectors, rebuilds and repairs."""
