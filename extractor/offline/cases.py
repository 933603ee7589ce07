"""Cases: a problem that a person told of, and the statement that says how it was solved."""

from collections.abc import Sequence
from typing import Final

from extractor.offline.classify import Statement
from extractor.offline.cues import CONFIRMATION, INSTRUCTION, PROBLEM, SOLUTION, is_question
from extractor.offline.keywords import content_words, stem
from extractor.offline.likeness import Likeness
from extractor.offline.operations import write
from extractor.offline.phrases import short_name
from extractor.offline.plan import Permit
from extractor.offline.prototypes import CASES
from runekeep.v1 import extractor_service_pb2

# Messages from a problem to its solution, at most.
_REACH: Final = 12
_ADVICE: Final = 4
# Characters of either side of a name.
_SIDE: Final = 48


def case_operations(
    statements: Sequence[Statement], permit: Permit, likeness: Likeness
) -> list[extractor_service_pb2.MemoryOperation]:
    """One write for each solved problem. A problem without a stated solution makes none."""
    type = permit.type(CASES, "case_name", "problem", "solution", "content")
    if type is None:
        return []
    operations = []
    taken: set[int] = set()
    for place, problem in enumerate(statements):
        if place in taken or not _is_problem(problem):
            continue
        solved = _solution(statements, place, taken, likeness)
        if not solved:
            continue
        taken.update([place, *solved])
        steps = [statements[n] for n in solved]
        operations.append(
            write(
                type,
                {
                    "case_name": f"{_side(problem)} → {_side(steps[0])}",
                    "problem": problem.line,
                    "solution": "\n".join(step.line for step in steps),
                    "content": "\n".join([problem.line, *(step.line for step in steps)]),
                },
                peer_id=problem.sentence.owner or "",
                sequences=[problem.sentence.sequence, *(step.sentence.sequence for step in steps)],
                reason="a problem and the statement that it is solved",
            )
        )
    return operations


def _is_problem(statement: Statement) -> bool:
    text = statement.sentence.text
    return (
        not statement.sentence.assistant
        and statement.sentence.owner is not None
        and PROBLEM.search(text) is not None
        and SOLUTION.search(text) is None
        and len(statement.sentence.words) >= 4
    )


def _solution(statements: Sequence[Statement], place: int, taken: set[int], likeness: Likeness) -> list[int]:
    """Places of the sentences that solve it: one that says how, or the advice that a confirmation follows."""
    problem = statements[place]
    for later in range(place + 1, len(statements)):
        sentence = statements[later].sentence
        if sentence.sequence - problem.sentence.sequence > _REACH:
            break
        if later in taken or is_question(sentence.text) or not _same_side(problem, statements[later]):
            continue
        if SOLUTION.search(sentence.text) is None:
            continue
        if CONFIRMATION.search(sentence.text) is None or len(content_words(sentence.text)) >= 5:
            if _speak_of_one_thing(problem, statements[later], likeness):
                return [later]
            continue
        advice = [
            n
            for n in range(place + 1, later)
            if statements[n].sentence.assistant
            and INSTRUCTION.search(statements[n].sentence.text) is not None
            and not is_question(statements[n].sentence.text)
        ][-_ADVICE:]
        if advice:
            return advice
    return []


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


def _side(statement: Statement) -> str:
    return short_name(statement.sentence.text, _SIDE)
