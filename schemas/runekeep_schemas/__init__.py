"""The rules of memories: their types, URIs, changes and texts.

The package is pure: it reads only the YAML files of the types, and writes nothing. `Registry.load` lives in
`runekeep_schemas.type_files.registry`, because it imports pydantic and a YAML reader.
"""

from runekeep_schemas.documents.uris import ForeignSpaceError, UriError, canonicalize
from runekeep_schemas.memory_types.coerce import FieldError
from runekeep_schemas.memory_types.model import (
    Derived,
    Field,
    FieldType,
    FieldValue,
    MemoryType,
    MergeOp,
    OperationMode,
)

__all__ = [
    "Derived",
    "Field",
    "FieldError",
    "FieldType",
    "FieldValue",
    "ForeignSpaceError",
    "MemoryType",
    "MergeOp",
    "OperationMode",
    "UriError",
    "canonicalize",
]
