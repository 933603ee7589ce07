"""Claims of jobs with few and with many pending: tests.bench.claims, with fewer repetitions. A poll that finds nothing
writes nothing, so it has no floor."""

from tests.bench import claims
from tests.bench.figures import POSTGRES, SQLITE, Figure, Floor, Target, ratio
from tests.bench.setting import Setting

PART = "claims"
PENDING = (100, 100_000)
QUICK = (100, 200)
FLOOR = "an indexed UPDATE ... RETURNING"
MIN_A_SECOND = {SQLITE: 1000.0, POSTGRES: 250.0}
ACTIONS = {"claim": "claims", "claim + succeed": "claims with their end", "poll": "polls while all jobs wait"}


async def measure(setting: Setting) -> list[Figure]:
    pending = list(QUICK if setting.quick else PENDING)
    figures: list[Figure] = []
    for store in setting.stores:
        run = claims.sqlite if store == SQLITE else claims.postgres
        made, unfair = await run(setting.repeats, pending, setting.progress)
        found = {(one.action, one.claimers, one.pending): one.rates for one in made}
        for (action, claimers, count), rates in found.items():
            if action == "floor":
                continue
            beneath = Floor(FLOOR, found["floor", claimers, count]) if action != "poll" else None
            fewest = found[action, claimers, pending[0]]
            notes = {f"to those with {pending[0]:,} pending": ratio(rates, fewest)} if count != pending[0] else {}
            # It was counted with one claimer.
            if (action, claimers, count) == ("claim", 1, pending[-1]) and unfair is not None:
                notes["unfairness, of what is allowed"] = unfair
            unit = "polls/s" if action == "poll" else "claims/s"
            target = Target("value", "at least", MIN_A_SECOND[store])
            beside = "1 claimer" if claimers == 1 else f"{claimers} claimers"
            figures.append(
                Figure(
                    PART, f"{ACTIONS[action]}, {count:,} pending, {beside}", unit, rates, store, (), beneath,
                    target if action == "claim" and count == pending[-1] else None, notes,
                )
            )  # fmt: skip
    return figures
