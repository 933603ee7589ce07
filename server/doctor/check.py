"""What a check says: one line of what was found, and one of what to do."""

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
    """`name` is stable: `area.what`. `found` is one line; of a check that was skipped it says why. `advice` is one line
    too, and empty where nothing is to be done."""

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
    """Libraries tell in their errors what they were given."""
    found, advice = check.found, check.advice
    for secret in secrets:
        if secret:
            found, advice = found.replace(secret, "***"), advice.replace(secret, "***")
    return replace(check, found=" ".join(found.split()), advice=" ".join(advice.split()))


def is_readable(url: str, *, of_one_host: bool = False) -> bool:
    """Whether its parts are where they seem to be. A password with one of `/?#[]` as it is makes another URL of it, and
    pieces of it a port, a database or a host, which errors tell. The port is looked at `of_one_host`; PostgreSQL's may
    name several."""
    try:
        parts = urlsplit(url)
        if of_one_host and parts.port == 0:
            return False
    except ValueError:
        return False
    return "@" in parts.netloc or "@" not in parts.path + parts.fragment


def passwords_in(url: str) -> Iterator[str]:
    """As they stand there and as they are meant, also those of a URL that cannot be read."""
    yield from _both(url.partition("://")[2].rpartition("@")[0].partition(":")[2])
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    yield from _both(parts.password or "")
    yield from parse_qs(parts.query).get("password", ())


def _both(password: str) -> tuple[str, str]:
    return password, unquote(password)
