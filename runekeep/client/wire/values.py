"""Types of values that results of several subjects hold."""

from typing import TypedDict

Scalar = str | int | float | bool


class Extractor(TypedDict):
    engine: str
    model: str
    version: str
