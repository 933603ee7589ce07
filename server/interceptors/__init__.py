"""What cuts across all calls of the services."""

from server.interceptors.chain import CallChain

__all__ = ["CallChain"]
