"""Turns talk into memory: takes jobs from a server, extracts, streams operations back."""
