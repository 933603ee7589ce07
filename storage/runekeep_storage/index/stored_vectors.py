"""What the index itself records of its dense vectors: their datatype, models, dimensions and names.

While the embedder is changed, there are two kinds."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from runekeep_storage.index import payload as shape
from runekeep_storage.index.base import VectorDatatype, VectorSpace, datatype_mismatch, describe, mismatch


@dataclass(frozen=True, slots=True)
class StoredVectors:
    """The spaces of an index, and the name of the vectors of each. The first is the one that servers of the release
    before know. `datatype`: of all vectors, a `VectorDatatype`, or one that only later releases know."""

    names: Mapping[VectorSpace, str]
    datatype: str = VectorDatatype.FLOAT32

    @classmethod
    def of_new(cls, datatype: VectorDatatype, *spaces: VectorSpace) -> Self:
        """Returns what a new index for these spaces records."""
        first, *others = spaces
        return cls({first: shape.DENSE, **{other: _name(other) for other in others}}, datatype)

    @classmethod
    def of_metadata(cls, told: Mapping[str, Any]) -> Self:
        """Reads the form of `metadata`. A server may return an integer as a float. Raises KeyError or TypeError if it
        is none."""
        first = VectorSpace(str(told["model"]), int(told["dimension"]))
        names = {first: str(told.get("vector", shape.DENSE))}
        if told.get("other_model"):
            names[VectorSpace(str(told["other_model"]), int(told["other_dimension"]))] = str(told["other_vector"])
        # Indexes of the release before record no datatype.
        return cls(names, str(told.get("datatype", VectorDatatype.FLOAT32)))

    @property
    def metadata(self) -> dict[str, Any]:
        """The form in which an index records it. `other_model` is empty if there is only one space."""
        (first, name), *others = self.names.items()
        other, other_name = others[0] if others else (VectorSpace("", 0), "")
        return {
            "model": first.model,
            "dimension": first.dimension,
            "vector": name,
            "other_model": other.model,
            "other_dimension": other.dimension,
            "other_vector": other_name,
            "datatype": str(self.datatype),
        }

    @property
    def dimensions(self) -> dict[str, int]:
        """The dimension of each kind of vectors, by name."""
        return {name: space.dimension for space, name in self.names.items() if space.dimension}

    def checked(self, space: VectorSpace, datatype: VectorDatatype) -> Self:
        """Returns the record that a server with these settings goes on with. Raises IndexMismatch if there are no
        vectors of the space, or if there are dense vectors of another datatype."""
        if space not in self.names:
            raise mismatch(" and ".join(map(describe, self.names)), space)
        if self.dimensions and self.datatype != datatype:
            raise datatype_mismatch(self.datatype, datatype)
        # Without dense vectors, the datatype is that of the vectors that are added first.
        return replace(self, datatype=datatype)

    def named(self, model: str) -> str | None:
        """Returns the name of the vectors of a model, None if there are none."""
        return next((name for space, name in self.names.items() if space.model == model), None)

    def with_space(self, space: VectorSpace) -> Self:
        return self if space in self.names else replace(self, names={**self.names, space: _name(space)})

    def without(self, name: str) -> Self:
        """Returns the record without the vectors of that name."""
        return replace(self, names={space: other for space, other in self.names.items() if other != name})

    def by_name(self, vectors: Mapping[str, bytes], opened: VectorSpace) -> dict[str, bytes]:
        """Returns vectors by name. `vectors`: by model; an empty model is that of `opened`. Those of unknown models are
        left out."""
        named = {self.named(model or opened.model): vector for model, vector in vectors.items()}
        return {name: vector for name, vector in named.items() if name is not None}


def _name(space: VectorSpace) -> str:
    """Returns the name for vectors that are added to an index; the same on every server."""
    text = f"{space.model}/{space.dimension}"
    return f"{shape.DENSE}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
