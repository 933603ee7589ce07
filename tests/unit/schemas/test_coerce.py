import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep_schemas.memory_types.coerce import INT64_MAX, INT64_MIN, FieldError, coerce_value
from runekeep_schemas.memory_types.model import ABSTRACT, Field, FieldType

TEXT = Field("f", FieldType.STRING)
INT = Field("f", FieldType.INT64)
FLOAT = Field("f", FieldType.FLOAT32)
BOOL = Field("f", FieldType.BOOL)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (TEXT, " a\n", " a\n"),
        (TEXT, 2026, "2026"),
        (INT, 3, 3),
        (INT, "3", 3),
        (INT, " -3 ", -3),
        (INT, 3.0, 3),
        (INT, "3.0", 3),
        (INT, INT64_MAX, INT64_MAX),
        (INT, str(INT64_MIN), INT64_MIN),
        (INT, 2**53 + 1, 2**53 + 1),
        (INT, str(2**53 + 1), 2**53 + 1),
        (FLOAT, "0.5", 0.5),
        (FLOAT, 2, 2.0),
        (BOOL, "True", True),
        (BOOL, "no", False),
        (BOOL, 1, True),
        (BOOL, False, False),
    ],
)
def test_forms_that_are_taken(field: Field, value: object, expected: object) -> None:
    coerced = coerce_value(field, value)
    assert coerced == expected
    assert type(coerced) is type(expected)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (TEXT, None),
        (TEXT, True),
        (TEXT, ["a"]),
        (TEXT, {"a": 1}),
        (TEXT, "a\0b"),
        (TEXT, "\ud800"),
        (INT, 3.5),
        (INT, "3.5"),
        (INT, "three"),
        (INT, "٣"),
        (INT, True),
        (INT, INT64_MAX + 1),
        (INT, INT64_MIN - 1),
        (INT, 1e300),
        (INT, math.nan),
        (INT, math.inf),
        (INT, None),
        (FLOAT, math.nan),
        (FLOAT, "inf"),
        (FLOAT, 3.5e38),
        (FLOAT, 10**400),
        (FLOAT, True),
        (FLOAT, "much"),
        (BOOL, "maybe"),
        (BOOL, 2),
        (BOOL, None),
    ],
)
def test_what_would_lose_something_is_refused(field: Field, value: object) -> None:
    with pytest.raises(FieldError) as caught:
        coerce_value(field, value)
    assert caught.value.field == "f"


def test_an_error_never_repeats_the_value() -> None:
    with pytest.raises(FieldError) as caught:
        coerce_value(INT, "my secret")
    assert "secret" not in str(caught.value)


def test_choices() -> None:
    field = Field("outcome", choices=("success", "failure"))
    assert coerce_value(field, " Success") == "success"
    assert coerce_value(field, "") == ""
    with pytest.raises(FieldError, match="success, failure"):
        coerce_value(field, "so-so")


def test_an_abstract_is_one_line() -> None:
    assert coerce_value(ABSTRACT, " a\n b\u2028c ") == "a b c"


@given(st.floats(allow_nan=True) | st.integers() | st.text() | st.booleans())
def test_coercing_twice_changes_nothing(value: Any) -> None:
    for field in (TEXT, INT, FLOAT, BOOL, ABSTRACT):
        try:
            coerced = coerce_value(field, value)
        except FieldError:
            continue
        again = coerce_value(field, coerced)
        assert again == coerced and type(again) is type(coerced)
