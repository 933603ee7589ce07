"""From an extractor's output to one transaction: check, route, merge, render, embed, apply. Workers are not trusted."""
