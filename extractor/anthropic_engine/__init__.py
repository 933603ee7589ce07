"""Extraction by a language model that is reached through the Anthropic Messages API."""

from extractor.anthropic_engine.engine import AnthropicEngine

__all__ = ["AnthropicEngine"]
