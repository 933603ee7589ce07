"""What an attack cost the attacker and the others, and whether the server held."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from tests.attack.probe import Delays

MEGABYTE = 1024 * 1024
MAX_GROWTH_BYTES = 512 * MEGABYTE
"""How much memory an attack may take: four times the bytes of requests that one account may have in progress."""
MAX_RATIO = 3.0
"""How many times longer the probe's p99 may be than while nobody attacks."""
NOISE_MS = 10.0
"""A quiet p99 below this counts as this: on a shared machine shorter times are chance."""


@dataclass(slots=True)
class Row:
    """One attack. `codes`: calls of the attacker that ended, by status. `unanswered`: calls that did not end in time.
    `failures`: what others were denied."""

    attack: str
    seconds: float
    rounds: int
    sent_bytes: int
    started: int
    codes: dict[str, int]
    growth_bytes: int
    probe: Delays
    breaches: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        return sum(count for code, count in self.codes.items() if code in ACCEPTED)

    @property
    def refused(self) -> int:
        return sum(self.codes.values()) - self.accepted

    @property
    def unanswered(self) -> int:
        return self.started - sum(self.codes.values())

    @property
    def ran(self) -> bool:
        return self.started > 0 and self.sent_bytes > 0 and self.probe.calls > 0

    def wrong(self) -> list[str]:
        """Returns what must never be, whatever the machine is busy with."""
        found = [f"leak: {breach}" for breach in self.breaches]
        found += [f"others: {failure}" for failure in self.failures]
        if self.probe.failed:
            found.append(f"{len(self.probe.failed)} calls of the probe failed: {self.probe.failed[0]}")
        if not self.ran:
            found.append("the attack did not run")
        return found


ACCEPTED = ("OK", "OPEN", "ASKED", "ASSIGNED", "JOB_OUTCOME_APPLIED", "JOB_OUTCOME_NEEDS_REPAIR")


@dataclass(slots=True)
class Report:
    """All attacks on one server. `quiet`: the probe before each of them; `faults`: of the whole run."""

    mode: str
    store: str
    seed: str
    rows: list[Row] = field(default_factory=list)
    quiet: list[Delays] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def quiet_p50_ms(self) -> float:
        return median(one.p50_ms for one in self.quiet)

    @property
    def quiet_p99_ms(self) -> float:
        """The median over the windows, so that one that something else disturbed does not count."""
        return median(one.p99_ms for one in self.quiet)

    def ratio(self, row: Row) -> float:
        return row.probe.p99_ms / max(self.quiet_p99_ms, NOISE_MS)

    def broken(self, row: Row) -> list[str]:
        """Returns why the server did not hold, measured delay and memory included."""
        found = row.wrong()
        if row.growth_bytes > MAX_GROWTH_BYTES:
            found.append(f"memory grew by more than {MAX_GROWTH_BYTES // MEGABYTE} MB")
        if self.ratio(row) > MAX_RATIO:
            found.append(f"p99 {self.ratio(row):.1f} times the quiet one")
        return found

    @property
    def passed(self) -> bool:
        return not self.faults and not any(self.broken(row) for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        rows = [
            {
                **asdict(row),
                "accepted": row.accepted,
                "refused": row.refused,
                "unanswered": row.unanswered,
                "ratio": round(self.ratio(row), 2),
                "broken": self.broken(row),
            }
            for row in self.rows
        ]
        return {
            "mode": self.mode,
            "store": self.store,
            "seed": self.seed,
            "passed": self.passed,
            "faults": self.faults,
            "quiet": {"windows": len(self.quiet), "p50_ms": self.quiet_p50_ms, "p99_ms": self.quiet_p99_ms},
            "rows": rows,
        }

    def table(self) -> str:
        head = ("attack", "sent", "accepted", "refused", "open", "memory", "quiet p50/p99", "p50/p99 ms", "ratio", "")
        quiet = f"{self.quiet_p50_ms:.0f}/{self.quiet_p99_ms:.0f}" if self.quiet else ""
        rows: list[Sequence[str]] = [head]
        for row in self.rows:
            delays = f"{row.probe.p50_ms:.0f}/{row.probe.p99_ms:.0f}"
            grown = f"+{row.growth_bytes / MEGABYTE:.0f} MB"
            counts = (str(row.accepted), str(row.refused), str(row.unanswered))
            verdict = "BROKEN" if self.broken(row) else "held"
            rows.append(
                (row.attack, size(row.sent_bytes), *counts, grown, quiet, delays, f"{self.ratio(row):.1f}", verdict)
            )
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
            )
            for row in rows
        ]
        reasons = [f"  {row.attack}: {why}" for row in self.rows for why in self.broken(row)]
        faults = [f"  the run: {fault}" for fault in self.faults]
        return "\n".join([f"mode {self.mode}, {self.store}, seed {self.seed}", *lines, *reasons, *faults])


def size(count: int) -> str:
    """Returns a number of bytes for people."""
    return f"{count / MEGABYTE:.1f} MB" if count >= MEGABYTE else f"{count / 1024:.1f} KB"
