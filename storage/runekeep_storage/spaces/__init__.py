"""Spaces of users: their rows, their locks, pending deletions, and the watermark of the index."""
