"""Recall of evidence: the share of a question's evidence turns, and of their sessions, that a search finds.

Of sessions there are two figures. `session_recall_K` counts the first K sessions that the ranking names, each once,
however many of its turns stand before the next session: which sessions the search holds for the K best.
`result_session_recall_K` counts the sessions of the first K results, which are fewer, as several results are often of
one session: what a caller sees who asks for K results.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from tests.bench.recall.locomo import CATEGORIES, Conversation, Question

DEPTHS = (5, 10, 20)
FIGURES = ("turn_recall", "session_recall", "result_session_recall")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with the message ids that were found, best first, and how long the first ten took, in milliseconds."""

    question: Question
    found: tuple[str, ...]
    milliseconds: float


def turn_recall(asked: Asked, depth: int) -> float:
    return len(asked.question.evidence & set(asked.found[:depth])) / len(asked.question.evidence)


def session_recall(asked: Asked, depth: int, session_of: Mapping[str, str]) -> float:
    """Of the first sessions of the ranking, each counted once."""
    return _sessions(asked, list(dict.fromkeys(session_of[turn] for turn in asked.found))[:depth], session_of)


def result_session_recall(asked: Asked, depth: int, session_of: Mapping[str, str]) -> float:
    """Of the sessions of the first results."""
    return _sessions(asked, [session_of[turn] for turn in asked.found[:depth]], session_of)


def _sessions(asked: Asked, found: Sequence[str], session_of: Mapping[str, str]) -> float:
    wanted = {session_of[turn] for turn in asked.question.evidence}
    return len(wanted.intersection(found)) / len(wanted)


def figures(answers: Mapping[str, Sequence[Asked]], conversations: Sequence[Conversation]) -> dict[str, float]:
    """Means over the questions of a conversation, then over conversations. `answers` by user."""
    of = {one.user: one.session_of for one in conversations}
    made = {}
    for depth in DEPTHS:
        made[f"turn_recall_{depth}"] = mean(
            mean(turn_recall(asked, depth) for asked in some) for some in answers.values()
        )
        made[f"session_recall_{depth}"] = mean(
            mean(session_recall(asked, depth, of[user]) for asked in some) for user, some in answers.items()
        )
        made[f"result_session_recall_{depth}"] = mean(
            mean(result_session_recall(asked, depth, of[user]) for asked in some) for user, some in answers.items()
        )
    return {name: round(value, 4) for name, value in made.items()}


def by_category(
    answers: Mapping[str, Sequence[Asked]], conversations: Sequence[Conversation]
) -> dict[int, dict[str, float]]:
    """The same for the questions of each category, over the conversations that have some; with their number."""
    made: dict[int, dict[str, float]] = {}
    for category in CATEGORIES:
        some = {user: [one for one in asked if one.question.category == category] for user, asked in answers.items()}
        some = {user: asked for user, asked in some.items() if asked}
        if some:
            made[category] = {"questions": sum(map(len, some.values())), **figures(some, conversations)}
    return made
