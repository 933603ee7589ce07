"""The base class of what calls return."""

import reprlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

_EMPTY: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False}


class Result(Mapping[str, Any]):
    """What a call returns. A subclass declares the attributes, which are read-only.

    Times are attributes of the type `datetime`, in UTC. What a result does not have is None if its type allows that,
    else the empty value of its type. `to_dict()` returns dictionaries and lists that `json.dumps` takes, with times as
    ISO 8601. As a mapping, for older code, a result has the keys and values of `to_dict()`.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__["_values"] = values

    def to_dict(self) -> dict[str, Any]:
        """Returns a copy as dictionaries and lists that `json.dumps` takes."""
        return {name: _copy(value) for name, value in self._values.items()}

    if TYPE_CHECKING:
        _values: Mapping[str, Any]
    else:
        # Type checkers must not see this: they would accept every name.
        def __getattr__(self, name: str) -> Any:
            readers = _readers(type(self))
            if name in readers:
                value = self.__dict__[name] = readers[name](self._values.get(name))
                return value
            meant = () if name.startswith("_") else get_close_matches(name, readers, n=1)
            hint = f"; did you mean {meant[0]!r}?" if meant else ""
            # With `name` and without `obj`, Python does not add a second suggestion.
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}", name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is read-only; to_dict() returns a copy that you may change")

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_readers(type(self))})

    def __repr__(self) -> str:
        """Names the attributes that are not empty, and shortens their values."""
        values = {name: getattr(self, name) for name in _readers(type(self))}
        shown = ", ".join(f"{name}={_SHORT.repr(value)}" for name, value in values.items() if value)
        return f"{type(self).__name__}({shown})"


class _ShortRepr(reprlib.Repr):
    def repr_instance(self, x: Any, level: int) -> str:
        return repr(x) if isinstance(x, Result | datetime) else super().repr_instance(x, level)


_SHORT = _ShortRepr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlist = _SHORT.maxdict = 3


@cache
def _readers(of: type[Result]) -> dict[str, Callable[[Any], Any]]:
    """Returns, by name, functions that make the value of an attribute of the value in a response, or of None."""
    return {name: _reader(hint) for name, hint in get_type_hints(of).items() if not name.startswith("_")}


def _reader(hint: Any) -> Callable[[Any], Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType) and NoneType in arguments:
        (inner, *others) = (one for one in arguments if one is not NoneType)
        read = _same if others else _reader(inner)
        return lambda value: None if value is None else read(value)
    if origin is list:
        read = _reader(arguments[0])
        return lambda value: [read(item) for item in value or ()]
    if origin is dict:
        read = _reader(arguments[1])
        return lambda value: {key: read(item) for key, item in (value or {}).items()}
    if hint is datetime:
        return lambda value: None if value is None else datetime.fromisoformat(value)
    if isinstance(hint, type) and issubclass(hint, Result):
        return lambda value: hint(value or {})
    if hint in _EMPTY:
        return lambda value: _EMPTY[hint] if value is None else value
    return _same


def _same(value: Any) -> Any:
    return value


def _copy(value: Any) -> Any:
    match value:
        case dict():
            return {key: _copy(item) for key, item in value.items()}
        case list():
            return [_copy(item) for item in value]
    return value
