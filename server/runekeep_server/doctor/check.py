"""The result of a check: one line about what was found, and one about what to do."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import parse_qs, unquote, urlsplit


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check. `name` is stable: `area.what`. `found` is one line; for a skipped check it says why.
    `advice` is one line too, or empty if nothing is to be done."""

    name: str
    state: State
    found: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        return {"check": self.name, "state": self.state.value, "found": self.found, "do": self.advice}


def ok(name: str, found: str) -> Check:
    return Check(name, State.OK, found)


def warning(name: str, found: str, advice: str) -> Check:
    return Check(name, State.WARNING, found, advice)


def problem(name: str, found: str, advice: str) -> Check:
    return Check(name, State.PROBLEM, found, advice)


def skipped(name: str, why: str) -> Check:
    return Check(name, State.SKIPPED, why)


def without_secrets(check: Check, secrets: Iterable[str]) -> Check:
    """Returns the check with the secrets masked. Errors of libraries quote their arguments."""
    found, advice = check.found, check.advice
    for secret in secrets:
        if secret:
            found, advice = found.replace(secret, "***"), advice.replace(secret, "***")
    return replace(check, found=" ".join(found.split()), advice=" ".join(advice.split()))


def is_readable(url: str, *, of_one_host: bool = False) -> bool:
    """Returns whether the parts of a URL are what they seem. An unescaped `/?#[]` in a password moves parts of it into
    the port, the database or the host, which error messages quote. `of_one_host`: also check the port; URLs of
    PostgreSQL may have several."""
    try:
        parts = urlsplit(url)
        if of_one_host and parts.port == 0:
            return False
    except ValueError:
        return False
    return "@" in parts.netloc or "@" not in parts.path + parts.fragment


def passwords_in(url: str) -> Iterator[str]:
    """Yields the passwords in a URL, both as written and unescaped, even if the URL cannot be parsed."""
    yield from _both(url.partition("://")[2].rpartition("@")[0].partition(":")[2])
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    yield from _both(parts.password or "")
    yield from parse_qs(parts.query).get("password", ())


def _both(password: str) -> tuple[str, str]:
    return password, unquote(password)
