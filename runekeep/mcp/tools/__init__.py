"""The tools, by subject. Their names and docstrings are what a model reads, so they are short."""
