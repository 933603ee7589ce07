"""Formats numbers and times."""


def format_count(number: int, one: str, many: str) -> str:
    """Returns a number with its noun: `one` is the singular, `many` the plural."""
    return f"{number} {one if number == 1 else many}"


def format_minute(time: str | None) -> str:
    """Returns a time of a response (ISO 8601, UTC) to the minute; empty for None."""
    return time[:16].replace("T", " ") + " UTC" if time else ""
