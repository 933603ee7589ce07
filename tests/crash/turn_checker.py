"""What is checked of turns: each has its fingerprint as it was said and found out, and is in its bucket once."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.crash.history import FIRST_WEIGHT, Aftermath, History, Print, Space, Theme, Turn, Way, own_words, printed
from tests.crash.violations import Violation, Wrong


def check_turns(history: History, space: Space, after: Aftermath) -> Iterator[Violation]:
    """All violations in what became of a space's turns."""
    turns = [turn for turn in history.turns if turn.space == space]
    for session in sorted({turn.session for turn in turns} | after.prints.keys() | after.themes.keys()):
        mine = [turn for turn in turns if turn.session == session]
        for wrong, text in _fingerprints(mine, after.prints.get(session, {}), after.artifacts.get(session, ())):
            yield Violation(wrong, space, text)
        for wrong, text in _themes(mine, after.themes.get(session, ())):
            yield Violation(wrong, space, text)
    asked = {turn.task_id for turn in turns if turn.task_id} | history.reconciled.get(space, set())
    for task_id in sorted(asked):
        state = after.turn_tasks.get(task_id, "GONE")
        if state != "COMPLETED":
            yield Violation(Wrong.NOT_COMPLETED, space, f"task {task_id} about turns is {state}")
    for task_id in sorted(after.turn_tasks.keys() - asked):
        yield Violation(Wrong.DOUBLED, space, f"task {task_id} about turns is of no answer that a client got")


def _fingerprints(
    turns: Sequence[Turn], prints: Mapping[str, Print], tagged: Iterable[str]
) -> Iterator[tuple[Wrong, str]]:
    yield from _each_once(turns, prints, "fingerprint")
    yield from _each_once(turns, tagged, "fingerprint found by its tag")
    for turn in turns:
        there, wanted = prints.get(turn.id), printed(turn.id, turn.way)
        if there is None or there == wanted:
            continue
        own = own_words(turn.id)
        if turn.way is Way.OWN and (there.objective, there.assertions) != (own.objective, own.assertions):
            yield Wrong.LOST, f"what the caller said of turn {turn.id} is not there as it was said"
        else:
            yield Wrong.HALF_SEEN, f"the fingerprint of turn {turn.id} is not as it was found out"


def _themes(turns: Sequence[Turn], themes: Sequence[Theme]) -> Iterator[tuple[Wrong, str]]:
    facts = [fact for theme in themes for fact in theme.facts]
    yield from _each_once(turns, [key for key, _, _ in facts], "place in a bucket")
    for key, weight, rests_on in facts:
        if weight != FIRST_WEIGHT:
            yield Wrong.DOUBLED, f"turn {key} weighs {weight} in its bucket"
        if key not in rests_on:
            yield Wrong.LOST, f"what is in a bucket of turn {key} does not rest on it"
    if not all(theme.agrees for theme in themes):
        yield Wrong.HALF_SEEN, "a bucket's row and its blob are not of one change"


def _each_once(turns: Sequence[Turn], there: Iterable[str], what: str) -> Iterator[tuple[Wrong, str]]:
    counts, known = Counter(list(there)), {turn.id for turn in turns}
    for id in sorted(known - counts.keys()):
        yield Wrong.LOST, f"turn {id} has no {what}"
    for id, count in sorted(counts.items()):
        if id not in known:
            yield Wrong.FOREIGN, f"turn {id}, of nobody, has a {what}"
        elif count > 1:
            yield Wrong.DOUBLED, f"turn {id} has {count} times a {what}"
