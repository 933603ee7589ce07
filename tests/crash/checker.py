"""The list-append checker: nothing lost, nothing doubled, nothing out of order, nothing half seen."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tests.crash.history import LEDGERS, Aftermath, Commit, History, Sight, Space, marks_of
from tests.crash.turn_checker import check_turns
from tests.crash.violations import Violation, Wrong


def check(history: History) -> list[Violation]:
    """All violations of a finished history, one sentence each."""
    found = [Violation(Wrong.FAULT, None, fault) for fault in history.faults]
    commits = defaultdict(list)
    for commit in history.commits:
        commits[commit.space].append(commit)
    for space, aftermath in history.aftermath.items():
        found += _space(space, commits[space], aftermath)
        found += _messages(history, space, aftermath)
        found += _contents(history, space, aftermath)
        found += check_turns(history, space, aftermath)
    missing = commits.keys() - history.aftermath.keys()
    found += [Violation(Wrong.LOST, space, "nobody looked at what became of it") for space in missing]
    marks = {space: {name for commit in mine for name in commit.made} for space, mine in commits.items()}
    for sight in history.sights:
        found += _sight(sight, _order(history.aftermath.get(sight.space)))
        found += _leaks(sight, marks.get(sight.space, set()))
    for reading in history.readings:
        order = _order(history.aftermath.get(reading.space))
        if order is not None and reading.ids != order[: reading.revision]:
            text = f"{reading.ledger} at revision {reading.revision} was read with {_short(reading.ids)}"
            found.append(Violation(Wrong.HALF_SEEN, reading.space, text))
    found += _going_back(history)
    return found


def half_seen(sight: Sight) -> bool:
    """Whether one answer contradicts itself: some of its target's traces are in it and others are not, its ledgers
    differ, or one ledger is missing while others, or the marks of a commit that wrote to all, are there. An answer that
    is full may lack something for want of room.
    """
    ledgers = _ledgers(sight)
    traces = {sight.target in ids for ids in ledgers.values()}
    found = {mark in sight.marks for mark in marks_of(sight.target)}
    traces |= found - {False} if sight.is_full else found
    return len(traces) > 1 or len(set(ledgers.values())) > 1


def _ledgers(sight: Sight) -> dict[str, tuple[str, ...]]:
    """The ledgers that an answer must have; without ids for one that it lacks."""
    wanted = [name for name in LEDGERS if name in sight.ledgers or not sight.is_full]
    return {name: sight.ledgers.get(name, ()) for name in wanted}


def overlapping(history: History) -> int:
    """Counts searches that were answered while a newer revision was committed but not yet visible. They must not show
    what the index already has of that revision."""
    return sum(sight.revision < sight.latest for sight in history.sights)


def _order(aftermath: Aftermath | None) -> tuple[str, ...] | None:
    return aftermath.ledgers.get(LEDGERS[0], ()) if aftermath else None


def _sight(sight: Sight, order: tuple[str, ...] | None) -> Iterator[Violation]:
    seen = f"revision {sight.revision}, searched for {sight.target}"
    if half_seen(sight):
        ledgers = {name: _short(ids) for name, ids in sorted(sight.ledgers.items())}
        yield Violation(Wrong.HALF_SEEN, sight.space, f"{seen}: {sorted(sight.marks)} {ledgers}")
    elif order is not None:
        wanted = order[: sight.revision]
        if any(ids != wanted for ids in _ledgers(sight).values()):
            shown = _short(sight.ledgers.get(LEDGERS[0], ()))
            yield Violation(Wrong.HALF_SEEN, sight.space, f"{seen}: the ledgers are not of that revision: {shown}")
    if sight.revision < sight.minimum:
        yield Violation(Wrong.WENT_BACK, sight.space, f"{seen}, where at least {sight.minimum} was asked for")


def _leaks(sight: Sight, marks: set[str]) -> Iterator[Violation]:
    """Checks that a search shows nothing of other users, neither by its URI nor by its content."""
    for what in sorted(sight.foreign | (sight.marks - marks)):
        yield Violation(Wrong.LEAKED, sight.space, f"a search for {sight.target} found {what}")


def _going_back(history: History) -> Iterator[Violation]:
    """A reader that asks for what it knows, or that reads the store, never sees an older revision than before."""
    last: dict[tuple[Space, str, str], int] = {}
    steps = [((one.space, one.reader, ""), one.revision) for one in history.sights if one.minimum]
    steps += [((one.space, one.reader, one.ledger), one.revision) for one in history.readings]
    for key, revision in steps:
        if revision < last.get(key, 0):
            text = f"{key[1]} saw revision {revision} after {last[key]}"
            yield Violation(Wrong.WENT_BACK, key[0], text)
        last[key] = max(revision, last.get(key, 0))


def _space(space: Space, commits: Sequence[Commit], after: Aftermath) -> Iterator[Violation]:
    accepted = {commit.id: commit for commit in commits}
    for name in LEDGERS:
        for wrong, text in _against(after.ledgers.get(name, ()), accepted, f"in {name}"):
            yield Violation(wrong, space, text)
    for wrong, text in _against(after.marks, [name for commit in commits for name in commit.made], "among the marks"):
        yield Violation(wrong, space, text)
    ids = {commit.task_id: commit.id for commit in commits}
    tasks = sorted((ended.revision, task) for task, ended in after.tasks.items() if task in ids)
    order = tuple(ids[task] for _, task in tasks)
    for name in LEDGERS:
        if after.ledgers.get(name, ()) != order:
            yield Violation(Wrong.DISORDER, space, f"{name} is not in the order of the tasks' revisions")
        yield from _real_time(space, name, after.ledgers.get(name, ()), accepted)
    yield from _tasks(space, commits, after)
    yield from _revisions(space, len(commits), after)
    yield from _replayed(space, after)
    rest = {"tasks are open": after.open_tasks, "passages or memories are not searchable in full": after.pending}
    for what, count in rest.items():
        if count:
            yield Violation(Wrong.LEFT_OVER, space, f"{count} {what}")
    if after.indexed_revision != after.revision:
        text = f"the watermark stays at {after.indexed_revision} of {after.revision}"
        yield Violation(Wrong.LEFT_OVER, space, text)


def _against(there: Iterable[str], wanted: Iterable[str], where: str) -> Iterator[tuple[Wrong, str]]:
    counts, known = Counter(there), set(wanted)
    for id in sorted(known - counts.keys()):
        yield Wrong.LOST, f"{id} is not {where}"
    for id, count in sorted(counts.items()):
        if id not in known:
            yield Wrong.FOREIGN, f"{id} is {where}"
        elif count > 1:
            yield Wrong.DOUBLED, f"{id} is {count} times {where}"


def _real_time(space: Space, name: str, ids: Sequence[str], accepted: dict[str, Commit]) -> Iterator[Violation]:
    """What was answered before another one was asked for stands before it."""
    latest: Commit | None = None
    for commit in (accepted[id] for id in ids if id in accepted):
        if latest is not None and commit.answered < latest.invoked:
            text = f"in {name} {commit.id} follows {latest.id}, which was asked for later"
            yield Violation(Wrong.DISORDER, space, text)
        if latest is None or commit.invoked > latest.invoked:
            latest = commit


def _tasks(space: Space, commits: Sequence[Commit], after: Aftermath) -> Iterator[Violation]:
    for commit in commits:
        ended = after.tasks.get(commit.task_id)
        said = "is gone" if ended is None else f"is {ended.state}, {ended.outcome}"
        if ended is None or (ended.state, ended.outcome) != ("COMPLETED", "APPLIED"):
            yield Violation(Wrong.NOT_COMPLETED, space, f"the task of {commit.id} {said}")
            continue
        ledgers = len(LEDGERS) if ended.revision == 1 else 0
        wanted = (len(commit.made) + ledgers, len(LEDGERS) - ledgers)
        if (ended.adds, ended.updates) != wanted:
            text = f"{commit.id} made {ended.adds} adds and {ended.updates} updates, not {wanted[0]} and {wanted[1]}"
            yield Violation(Wrong.LOST, space, text)
    for task_id in sorted(after.tasks.keys() - {commit.task_id for commit in commits}):
        yield Violation(Wrong.DOUBLED, space, f"task {task_id} is of no answer that a client got")


def _revisions(space: Space, count: int, after: Aftermath) -> Iterator[Violation]:
    if after.revision != count:
        yield Violation(Wrong.DOUBLED if after.revision > count else Wrong.LOST, space, (
            f"{count} commits made {after.revision} revisions"
        ))  # fmt: skip
    revisions = sorted(ended.revision for ended in after.tasks.values() if ended.state == "COMPLETED")
    if revisions != list(range(1, len(revisions) + 1)):
        yield Violation(Wrong.LOST, space, "the revisions of the tasks have gaps or repeats")
    steps = tuple((number, number) for number in range(1, after.revision + 1))
    for name in LEDGERS:
        if after.versions.get(name, ()) != steps:
            yield Violation(Wrong.LOST, space, f"the versions of {name} have gaps or repeats")


def _replayed(space: Space, after: Aftermath) -> Iterator[Violation]:
    """All diffs, one after the other, lead to what is there."""
    files: dict[str, str] = {}
    for diff in sorted(after.diffs.values(), key=lambda diff: diff.revision):
        for uri, (before, now) in diff.changes.items():
            if files.get(uri, "") != before:
                text = (
                    f"the diff of revision {diff.revision} begins with another {uri.rpartition('/')[2]} than there was"
                )
                yield Violation(Wrong.LOST, space, text)
            files[uri] = now
    if after.diffs.keys() != after.tasks.keys():
        yield Violation(Wrong.LOST, space, f"{len(after.tasks)} tasks have {len(after.diffs)} diffs")
    wanted = len(after.ledgers) + len(after.marks)
    if len(files) != wanted:
        yield Violation(Wrong.LOST, space, f"the diffs lead to {len(files)} files of {wanted}")


def _messages(history: History, space: Space, after: Aftermath) -> Iterator[Violation]:
    for (owner, session), added in history.added.items():
        if owner != space:
            continue
        there = list(after.messages.get(session, ()))
        for wrong, text in _against(there, added, f"in session {session}"):
            yield Violation(wrong, space, text)
        if sorted(there) == sorted(added) and there != added:
            yield Violation(Wrong.DISORDER, space, f"the messages of session {session}")


def _contents(history: History, space: Space, after: Aftermath) -> Iterator[Violation]:
    """Checks that every message, and every tool output beside it, is read as it was sent."""
    sent = {id for (owner, _), ids in history.added.items() if owner == space for id in ids}
    for id in sorted(sent & after.contents.keys()):
        if after.contents[id] != history.contents.get(id):
            yield Violation(Wrong.DAMAGED, space, f"message {id}")
    for id in sorted(sent - after.contents.keys()):
        yield Violation(Wrong.LOST, space, f"the content of message {id}")


def _short(ids: Sequence[str]) -> str:
    return f"{len(ids)} ids to {ids[-1]}" if ids else "no ids"
