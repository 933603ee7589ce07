"""Merges operations into drafts of the memories that they touch: what a commit or a reviewer would change."""
