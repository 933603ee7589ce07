"""What came of it, by method."""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field

MAX_FAULTS = 50


@dataclass(slots=True)
class Report:
    """Of all requests: those that the client's own library refused to send (`unsent`), and those that were `sent`.

    Of these: streams without any message (`empty`), calls whose time was over before the server is known to have seen
    them (`unseen`), and `valid` ones, which are requests, and streams with all their messages, of callers who are
    known, that keep to every rule of the contract. None is counted as two of them."""

    unsent: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    empty: Counter[str] = field(default_factory=Counter)
    unseen: Counter[str] = field(default_factory=Counter)
    valid: Counter[str] = field(default_factory=Counter)
    codes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    faults: list[str] = field(default_factory=list)
    probes: int = 0
    """Calls of an ordinary user during the campaign."""

    def count(self, method: str, code: str, *, valid: bool, empty: bool = False, seen: bool = True) -> None:
        self.sent[method] += 1
        self.codes[method][code] += 1
        if empty:
            self.empty[method] += 1
        elif not seen:
            self.unseen[method] += 1
        else:
            self.valid[method] += valid

    def fault(self, text: str) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(text)

    @property
    def share(self) -> float:
        return self.valid.total() / max(self.sent.total(), 1)

    def table(self) -> str:
        width = max(map(len, self.sent), default=6)
        counted = {"unsent": self.unsent, "sent": self.sent, "empty": self.empty, "unseen": self.unseen}
        counted["valid"] = self.valid
        lines = [f"{'method':{width}}  {'  '.join(f'{name:>6}' for name in counted)}  codes"]
        for method in sorted(self.sent):
            codes = ", ".join(f"{code} {count}" for code, count in self.codes[method].most_common())
            lines.append(f"{method:{width}}  {'  '.join(f'{one[method]:6}' for one in counted.values())}  {codes}")
        return "\n".join(lines)

    def line(self, **more: object) -> str:
        codes: Counter[str] = sum(self.codes.values(), Counter())
        told = {
            "requests": self.sent.total(),
            "unsent": self.unsent.total(),
            "empty_streams": self.empty.total(),
            "unseen": self.unseen.total(),
            "passed_validation": self.valid.total(),
            "share": round(self.share, 3),
            "methods": len(self.sent),
            "probes": self.probes,
            "codes": dict(codes.most_common()),
            "faults": len(self.faults),
        }
        return json.dumps({**more, **told})
