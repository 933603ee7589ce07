"""The processing that all calls share, whatever their service."""

from runekeep_server.rpc.chain import CallChain
from runekeep_server.rpc.parts import CallParts

__all__ = ["CallChain", "CallParts"]
