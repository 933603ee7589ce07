"""Calls to the server: the channel, retries, and searches whose answers may be large."""
