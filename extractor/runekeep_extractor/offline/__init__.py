"""The engine that works without a model: it keeps plainly stated facts and leaves the rest to passage search."""

from runekeep_extractor.offline.engine import OfflineEngine

__all__ = ["OfflineEngine"]
