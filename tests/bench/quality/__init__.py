"""Measures how many questions about a life can be answered from the text that Recall returns."""
