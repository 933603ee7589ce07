"""Turns an extractor's output into memory: check it, have it merged, render and embed, then apply in one transaction.
Workers are not trusted."""
