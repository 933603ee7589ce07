"""Describes who holds a lock. The holder writes this to a file for processes that find the lock taken."""

import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that holds a lock: its id, its host's name, and its start in ISO 8601."""

    pid: int
    host: str
    since: str

    @classmethod
    def this_process(cls) -> Self:
        return cls(os.getpid(), socket.gethostname(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))

    def note(self) -> str:
        """Returns the text of the file; see `describe_owner`."""
        return f"{self.pid} {self.host} {self.since}"


def describe_owner(note: str) -> str:
    """Describes the owner. The text may be empty, or hold only the process id, as in older releases."""
    pid, _, rest = note.strip().partition(" ")
    host, _, since = rest.partition(" ")
    if not pid:
        return "an unknown process"
    return f"process id {pid}" + (f" on {host}" if host else "") + (f" since {since}" if since else "")
