"""The engines by name."""

from extractor.engine import Engine
from extractor.settings import ExtractorSettings


def open_engine(settings: ExtractorSettings) -> Engine:
    """The engine that the settings ask for. Loads nothing of the other one. Raises NotConfigured."""
    if settings.chosen_engine == "anthropic":
        from extractor.anthropic_engine import AnthropicEngine

        return AnthropicEngine(settings.anthropic)
    from extractor.offline import OfflineEngine

    return OfflineEngine()


def stall_limit(settings: ExtractorSettings) -> float:
    """Seconds of silence after which a job hangs: a call of a model is allowed its own timeout on top."""
    model_call = settings.anthropic.timeout if settings.chosen_engine == "anthropic" else 0.0
    return settings.stall_timeout + model_call
