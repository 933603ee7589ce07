"""Cases: a problem that a person told of, and the statement that says how it was solved."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from extractor.offline.classify import Statement
from extractor.offline.compare import says_the_same
from extractor.offline.cues import CONFIRMATION, INSTRUCTION, PROBLEM, SOLUTION, is_question
from extractor.offline.guard import UNGUARDED, RuleGuard
from extractor.offline.keywords import content_words, stem
from extractor.offline.kinds import EVENT_DEED
from extractor.offline.known import KnownLine
from extractor.offline.likeness import Likeness
from extractor.offline.operations import write
from extractor.offline.phrases import short_name
from extractor.offline.plan import SELF, Permit
from extractor.offline.prototypes import CASES
from extractor.offline.remedies import REMEDY, TROUBLE, parts_of, solved_at_once
from runekeep.v1 import extractor_service_pb2

# Messages from a problem to its solution, at most.
_REACH: Final = 12
# And sentences: of one message there may be thousands.
_LOOKED_AT: Final = 200
_ADVICE: Final = 4
# Cases of one batch, at most; each is searched for.
_MOST: Final = 100
# Sentences of one message from a trouble to its remedy, at most.
_NEAR: Final = 3
# Characters of either side of a name.
_SIDE: Final = 48
# Reasons to keep no fact that still let a problem be one; what is supposed, quoted or made up is none.
_STILL_TOLD: Final = frozenset({"", "general", "moment", "mood", "undone"})


@dataclass(frozen=True, slots=True)
class Case:
    """A problem and the statements that solve it; the same one when it tells both."""

    problem: Statement
    steps: tuple[Statement, ...]

    @property
    def positions(self) -> set[int]:
        """Places of its statements in the batch."""
        return {statement.sentence.position for statement in (self.problem, *self.steps)}


def find_cases(
    statements: Sequence[Statement], permit: Permit, likeness: Likeness, guard: RuleGuard = UNGUARDED
) -> list[Case]:
    """Returns the solved problems of a batch; none where cases may not be written. `likeness` has learned the dated
    texts of the statements."""
    if permit.type(CASES, "case_name", "problem", "solution", "content") is None:
        return []
    cases: list[Case] = []
    taken: set[int] = set()
    turns = _Turns.of(statements)
    for place, problem in enumerate(statements):
        if len(cases) == _MOST:
            break
        if place in taken or problem.doubt not in _STILL_TOLD or problem.sentence.owner is None:
            continue
        solved = guard.run("cases", partial(_solved_by, statements, place, taken, turns, likeness), [])
        if solved:
            taken.update([place, *solved])
            cases.append(Case(problem, tuple(statements[n] for n in solved)))
    return cases


def _solved_by(
    statements: Sequence[Statement], place: int, taken: set[int], turns: "_Turns", likeness: Likeness
) -> list[int]:
    """Returns the places of the statements that solve the problem at `place`; empty when none does."""
    if _tells_both(statements[place]):
        return [place]
    return _soon(statements, place) or _solution(statements, place, taken, turns, likeness)


def case_operations(
    cases: Sequence[Case], permit: Permit, known: Sequence[KnownLine], likeness: Likeness
) -> list[extractor_service_pb2.MemoryOperation]:
    """One write for each case that `known` does not tell already."""
    type = permit.types[CASES] if cases else None
    operations = []
    for case in cases:
        if type is None or _is_known(case, known, likeness):
            continue
        problem, solution = _sides(case)
        operations.append(
            write(
                type,
                {
                    "case_name": f"{short_name(problem, _SIDE)} → {short_name(solution, _SIDE)}",
                    "problem": _line(case.problem, problem),
                    "solution": "\n".join([_line(case.steps[0], solution), *(step.line for step in case.steps[1:])]),
                    "content": "\n".join(dict.fromkeys([case.problem.line, *(step.line for step in case.steps)])),
                },
                peer_id=case.problem.sentence.owner or SELF,
                sequences={case.problem.sentence.sequence, *(step.sentence.sequence for step in case.steps)},
                reason="a problem and the statement that it is solved",
            )
        )
    return operations


def _tells_both(statement: Statement) -> bool:
    text = statement.sentence.text
    if statement.doubt not in _STILL_TOLD or not solved_at_once(text):
        return False
    # An agent explains much; what it did about it happened.
    return not statement.sentence.assistant or EVENT_DEED.search(text) is not None


def _sides(case: Case) -> tuple[str, str]:
    if case.steps == (case.problem,):
        return parts_of(case.problem.sentence.text)
    return case.problem.sentence.text, case.steps[0].sentence.text


def _line(statement: Statement, text: str) -> str:
    """A line of that part of the statement; the whole one with its dates made absolute."""
    return statement.line if text == statement.sentence.text else statement.line_of(text)


def _is_problem(statement: Statement) -> bool:
    text = statement.sentence.text
    return (
        not statement.sentence.assistant
        and PROBLEM.search(text) is not None
        and SOLUTION.search(text) is None
        and len(statement.sentence.words) >= 4
    )


def _soon(statements: Sequence[Statement], place: int) -> list[int]:
    """The remedy that the same message goes on to tell; looser words will do than further away."""
    problem = statements[place].sentence
    if TROUBLE.search(problem.text) is None or is_question(problem.text) or problem.assistant:
        return []
    for later in range(place + 1, min(place + _NEAR, len(statements))):
        sentence = statements[later].sentence
        if sentence.sequence != problem.sequence or is_question(sentence.text):
            break
        if REMEDY.search(sentence.text) is not None and statements[later].doubt in _STILL_TOLD:
            return list(range(place + 1, later + 1))
    return []


@dataclass(frozen=True, slots=True)
class _Turns:
    """Places, in order, of sentences that tell a solution and of an agent's instructions."""

    solutions: list[int]
    instructions: list[int]

    @classmethod
    def of(cls, statements: Sequence[Statement]) -> "_Turns":
        told = [n for n, one in enumerate(statements) if not is_question(one.sentence.text)]
        return cls(
            [n for n in told if SOLUTION.search(statements[n].sentence.text)],
            [
                n
                for n in told
                if statements[n].sentence.assistant and INSTRUCTION.search(statements[n].sentence.text) is not None
            ],
        )


def _solution(
    statements: Sequence[Statement], place: int, taken: set[int], turns: _Turns, likeness: Likeness
) -> list[int]:
    """Places of the sentences that solve it: one that says how, or the advice that a confirmation follows."""
    problem = statements[place]
    if not _is_problem(problem):
        return []
    for later in _between(turns.solutions, place, place + _LOOKED_AT):
        sentence = statements[later].sentence
        if sentence.sequence - problem.sentence.sequence > _REACH:
            break
        if later in taken or not _same_side(problem, statements[later]):
            continue
        if CONFIRMATION.search(sentence.text) is None or len(content_words(sentence.text)) >= 5:
            if _speak_of_one_thing(problem, statements[later], likeness):
                return [later]
            continue
        advice = _between(turns.instructions, place, later)[-_ADVICE:]
        if advice:
            return advice
    return []


def _between(places: list[int], first: int, last: int) -> list[int]:
    """Those of the ordered places that lie between the two."""
    return places[bisect_right(places, first) : bisect_left(places, last)]


def _same_side(problem: Statement, other: Statement) -> bool:
    """The agent, or somebody whose words go to the same memory."""
    return other.sentence.assistant or other.sentence.owner == problem.sentence.owner


def _speak_of_one_thing(problem: Statement, other: Statement, likeness: Likeness) -> bool:
    if other.sentence.sequence - problem.sentence.sequence <= 2:
        return True
    shared = {stem(word) for word in content_words(problem.sentence.text)} & {
        stem(word) for word in content_words(other.sentence.text)
    }
    return bool(shared) or likeness.between(problem.dated.text, other.dated.text) >= likeness.related


def _is_known(case: Case, known: Sequence[KnownLine], likeness: Likeness) -> bool:
    """Whether one memory has each of its statements."""
    lines: dict[str, list[KnownLine]] = {}
    for line in known:
        if line.memory_type == CASES and line.owner == case.problem.sentence.owner:
            lines.setdefault(line.uri, []).append(line)
    return any(
        all(
            any(says_the_same(said.dated.text, "", line.text, "", likeness) for line in told)
            for said in (case.problem, *case.steps)
        )
        for told in lines.values()
    )
