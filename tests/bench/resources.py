"""What a process takes of the machine, as Linux tells it, and what several take by their names."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Standing:
    """Of one process, or of some together. `megabytes`: of memory that are its own, and its share of what several
    processes map (PSS); `resident`: all that it maps and that is there (RSS), counted again for each process."""

    megabytes: float
    resident: float
    descriptors: int
    threads: int

    @classmethod
    def of(cls, *pids: int) -> "Standing":
        """Raises FileNotFoundError or ProcessLookupError where one of them is gone."""
        memory = [_memory(pid) for pid in pids]
        return cls(
            sum(own for own, _ in memory) / MEGABYTE,
            sum(mapped for _, mapped in memory) / MEGABYTE,
            sum(map(_descriptors, pids)),
            sum(map(_threads, pids)),
        )


class Meter:
    """Processor time of processes by name, since it was made or last read. A name may stand for several."""

    def __init__(self, processes: Mapping[str, Sequence[int]]) -> None:
        self._processes = processes
        self._read = self._now()

    def milliseconds(self) -> dict[str, float]:
        """By name, since the last time."""
        before, self._read = self._read, self._now()
        return {name: (seconds - before[name]) * 1000 for name, seconds in self._read.items()}

    def _now(self) -> dict[str, float]:
        return {name: sum(map(processor_seconds, pids)) for name, pids in self._processes.items()}


def processor_seconds(pid: int) -> float:
    """Of processor time so far, with that of children that ended and were waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICK


def _memory(pid: int) -> tuple[int, int]:
    """Bytes: PSS and RSS."""
    lines = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    kilobytes = {line[0]: int(line[1]) for line in lines if line[0] in ("Pss:", "Rss:")}
    return kilobytes["Pss:"] * 1024, kilobytes["Rss:"] * 1024


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))
