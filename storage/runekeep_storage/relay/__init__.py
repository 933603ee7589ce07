"""Brings the index up to date in the background: the relay, late vectors, rebuilds, repairs and embedder changes."""
