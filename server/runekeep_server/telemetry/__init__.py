"""Observability of the server: metrics, spans and logs."""
