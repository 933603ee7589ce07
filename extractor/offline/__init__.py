"""The engine without a model: it counts, picks and quotes, and never writes a sentence that nobody said."""

from extractor.offline.engine import OfflineEngine

__all__ = ["OfflineEngine"]
