"""Short names that stand for turn and bucket ids in prompts, and the spellings in which models write them."""

import re


def short_name(given: object, kind: str) -> str:
    """Returns the short name: `turn 1`, `#1`, `1` and the number itself give `t1`; for the kind `bucket` they give
    `b1`. Any other text is returned in the form used to compare names. A bare number may also mean a message: see
    `worded_name`.
    """
    return _name(given, kind, rf"(?:{kind}|{kind[0]})?[\s_#.:-]*")


def worded_name(given: object, kind: str) -> str:
    """As `short_name`, except that a bare number means nothing: `turn 1` is `t1`, and `#1` stays as it is."""
    return _name(given, kind, rf"(?:{kind}|{kind[0]})[\s_#.:-]*")


def _name(given: object, kind: str, before: str) -> str:
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    text = given.strip().casefold() if isinstance(given, str) else ""
    match = re.fullmatch(rf"{before}0*([1-9]\d*)", text)
    return f"{kind[0]}{match[1]}" if match else text
