"""Memories: their versions, revisions, origins and directories, and the transactions that apply extractor output."""
