"""Extraction by a language model, whatever its provider."""

from runekeep_extractor.pipeline.engine import ModelEngine

__all__ = ["ModelEngine"]
