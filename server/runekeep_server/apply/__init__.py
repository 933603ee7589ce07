"""Turns an extractor's output into memory: check, route, merge, render and embed, then apply in one transaction.
Workers are not trusted."""
