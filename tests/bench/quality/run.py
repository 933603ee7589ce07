"""Plays a life: commits its sessions in order, and asks each question on its day."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from runekeep import AsyncClient, Message, TextPart, ToolPart
from runekeep.client.sessions.messages import Part
from tests.bench.ingesting import await_commit, await_index, commit_session
from tests.bench.quality import lives
from tests.bench.quality.lives import Life, Question
from tests.bench.quality.relevance import BestScore
from tests.bench.quality.score import Judgement, judge

BUDGETS = (200, 400, 800, 1600)
SOURCES: dict[str, list[Literal["memory", "passage"]]] = {
    "memories": ["memory"],
    "passages": ["passage"],
    "both": [],
}


@dataclass(frozen=True, slots=True)
class Commit:
    """The cost of one commit of a session. `input_tokens`: includes cached tokens."""

    life: str
    session: str
    status: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class PlayedLife:
    asked: list[Judgement]
    commits: list[Commit]
    best_scores: list[BestScore]


async def play(life: Life, client: AsyncClient, *, extracts: bool, on_session_end: Callable[[], None]) -> PlayedLife:
    """Returns the judged answers and the commits. `extracts`: whether an extractor works for the server.
    `on_session_end`: called after each session."""
    played = PlayedLife([], [], [])
    waiting = sorted(life.questions, key=lambda one: one.asked)
    for session, messages in life.sessions.items():
        while waiting and waiting[0].asked < messages[0].at:
            await _ask(life, client, waiting.pop(0), played)
        played.commits.append(await _commit(life, client, session, messages, extracts=extracts))
        on_session_end()
    for question in waiting:
        await _ask(life, client, question, played)
    return played


async def _commit(
    life: Life, client: AsyncClient, name: str, messages: list[lives.Message], *, extracts: bool
) -> Commit:
    task_id = await commit_session(client, name, [_message(one) for one in messages])
    if not extracts:
        await await_index(client)
        return Commit(life.about.life, name, "not extracted")
    task = await await_commit(client, task_id)
    await await_index(client)
    result: Any = task["result"]
    usage = result["usage"]
    tokens = sum(one["input_tokens"] + one["cache_write_tokens"] + one["cache_read_tokens"] for one in usage)
    output = sum(one["output_tokens"] for one in usage)
    return Commit(life.about.life, name, task["status"], sum(one["calls"] for one in usage), tokens, output)


def _message(message: lives.Message) -> Message:
    parts: list[Part] = [TextPart(message.text)]
    parts.extend(
        ToolPart(f"{message.id}-{number}", call.name, input=call.input, output=call.output, status=call.status)
        for number, call in enumerate(message.tools, 1)
    )
    return Message(message.role, parts, id=message.id, created_at=message.at, speaker=message.name)


async def _ask(life: Life, client: AsyncClient, question: Question, played: PlayedLife) -> None:
    answer = await client.find(question.text, limit=1)
    best = answer["results"][0]["score"] if answer["results"] else 0.0
    played.best_scores.append(BestScore(question, best, is_degraded="dense" in answer["degraded"]))
    for sources, kinds in SOURCES.items():
        for budget in BUDGETS:
            recalled: Any = await client.recall(question.text, token_budget=budget, kinds=kinds)
            played.asked.append(judge(life, question, sources, budget, recalled))
