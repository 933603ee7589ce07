"""Extractor: takes jobs from a server, extracts memories from conversations, and streams operations back."""
