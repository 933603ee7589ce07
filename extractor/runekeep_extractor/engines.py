"""Opens an engine by name."""

from runekeep_extractor.engine.interface import Engine
from runekeep_extractor.settings import ExtractorSettings


def open_engine(settings: ExtractorSettings) -> Engine:
    """Returns the engine that the settings name, without loading the others. Raises NotConfigured."""
    if settings.models is not None:
        from runekeep_extractor.pipeline import ModelEngine

        return ModelEngine(settings.models)
    from runekeep_extractor.offline import OfflineEngine

    return OfflineEngine()


def stall_limit(settings: ExtractorSettings) -> float:
    """Seconds without activity after which a job counts as hung. A model call may take its own timeout on top."""
    return settings.stall_timeout + (settings.models.timeout if settings.models is not None else 0.0)
