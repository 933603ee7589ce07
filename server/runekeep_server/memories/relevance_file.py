"""Reads the operator's file of relevance curves, for embedders that this release has none for.

`make bench-quality ARGS="--relevance FILE ..."` writes it: JSON with slope and offset of a curve by the embedder's
model.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from runekeep_storage.search.relevance import Calibration


class RelevanceFileError(Exception):
    """The file cannot be read. The message names the entry and the reason."""


class _Curve(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    # With a slope of 0 or less, better results would be less relevant.
    slope: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
    offset: Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]


_CURVES: Final = TypeAdapter(dict[Annotated[str, Field(min_length=1)], _Curve])


def load_calibrations(path: Path) -> Mapping[str, Calibration]:
    """Returns calibrations by the embedder's model. Raises RelevanceFileError."""
    try:
        curves = _CURVES.validate_json(path.read_bytes())
    except OSError as error:
        raise RelevanceFileError(f"{path}: {error.strerror or error}") from error
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        where = " of ".join(f"`{part}`" for part in reversed(wrong["loc"]))
        raise RelevanceFileError(f"{path}: {f'{where}: ' if where else ''}{wrong['msg']}") from error
    return {model: Calibration(curve.slope, curve.offset) for model, curve in curves.items()}
