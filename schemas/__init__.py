"""What a memory is: its types, where it lies, how it changes and what it looks like.

Pure: nothing here reads or writes anything but the YAML files of the types. `Registry.load` lives in
`schemas.registry`, for it brings pydantic and a YAML reader along.
"""

from schemas.coerce import FieldError
from schemas.types import Derived, Field, FieldType, FieldValue, MemoryType, MergeOp, OperationMode
from schemas.uris import ForeignSpaceError, UriError, canonicalize

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
