"""Names that a model is given for turns and buckets in place of their ids, and the ways in which it writes them."""

import re


def short_name(given: object, kind: str) -> str:
    """`turn 1`, `#1`, `1` and the number itself mean `t1`, and of the kind `bucket` the same `b1`; any other text is
    given back as names are compared. Where messages have numbers too, a bare one may be theirs: see `worded_name`.
    """
    return _name(given, kind, rf"(?:{kind}|{kind[0]})?[\s_#.:-]*")


def worded_name(given: object, kind: str) -> str:
    """As `short_name`, but a number alone means nothing: `turn 1` is `t1`, and `#1` stays as it is."""
    return _name(given, kind, rf"(?:{kind}|{kind[0]})[\s_#.:-]*")


def _name(given: object, kind: str, before: str) -> str:
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    text = given.strip().casefold() if isinstance(given, str) else ""
    match = re.fullmatch(rf"{before}0*([1-9]\d*)", text)
    return f"{kind[0]}{match[1]}" if match else text
