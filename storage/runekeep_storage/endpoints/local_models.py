"""Loads ONNX models with the package `fastembed`, our extra `fastembed`: those that it knows by name, and any other
whose files lie in a folder."""

import importlib
from pathlib import Path
from typing import Any, Literal

Kind = Literal["TextEmbedding", "TextCrossEncoder"]
_MODULES = {"TextEmbedding": "fastembed", "TextCrossEncoder": "fastembed.rerank.cross_encoder"}


class ModelMissing(Exception):
    """The package or the model is missing; the message says what to do."""


def load_model(kind: Kind, model: str, path: Path | None, threads: int, *, setting: str, **traits: Any) -> Any:
    """Returns a loaded model. Without a folder it is loaded from the cache of `fastembed`, or downloaded.

    `setting`: the group of settings with the `path`; `traits`: what `fastembed` must be told of a model that it does
    not know. Raises ModelMissing; errors of the package pass through.
    """
    try:
        registry = getattr(importlib.import_module(_MODULES[kind]), kind)
    except ImportError as error:
        raise ModelMissing("the package fastembed is not installed: pip install 'runekeep[fastembed]'") from error
    name = model if model.lower() in _known_models(registry) else _add_model(registry, model, path, setting, traits)
    return registry(name, threads=threads, cuda=False, specific_model_path=None if path is None else str(path))


def _known_models(registry: Any) -> set[str]:
    return {str(one["model"]).lower() for one in registry.list_supported_models()}


def _add_model(registry: Any, model: str, path: Path | None, setting: str, traits: dict[str, Any]) -> str:
    """Describes a model to `fastembed` that it does not know, unless that was done before. Returns its name there."""
    from fastembed.common.model_description import ModelSource

    if path is None:
        raise ModelMissing(f"fastembed knows no model {model}; {setting}.path must name its folder")
    # With the traits in its name: during a change of the embedder, one model may be described in two ways.
    name = "/".join([model, *(f"{trait}={value}" for trait, value in sorted(traits.items()))])
    if name.lower() not in _known_models(registry):
        # The source is required and not used: the files are in the folder.
        registry.add_custom_model(model=name, sources=ModelSource(hf=model), model_file="model.onnx", **traits)
    return name
