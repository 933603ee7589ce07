"""What cuts across all calls of the services."""

from server.interceptors.chain import CallChain
from server.interceptors.parts import CallParts

__all__ = ["CallChain", "CallParts"]
