"""Serves the calls of users over HTTP, as JSON or protobuf, by the Connect protocol. See docs/guides/http.md."""
