"""Formats numbers and times."""

from datetime import datetime


def format_count(number: int, one: str, many: str) -> str:
    """Returns a number with its noun: `one` is the singular, `many` the plural."""
    return f"{number} {one if number == 1 else many}"


def format_minute(time: datetime | None) -> str:
    """Returns a time of a response to the minute in UTC; empty for None."""
    return f"{time:%Y-%m-%d %H:%M} UTC" if time else ""


def format_day(time: datetime | None) -> str:
    """Returns the day of a time of a response in UTC; empty for None."""
    return f"{time:%Y-%m-%d}" if time else ""
