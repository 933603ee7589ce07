"""Makes candidates for an answer of Recall from search results: their texts, their lines, and the lines' scores.

The weights were chosen with `make bench-quality` on four of its eight lives.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runekeep_schemas.documents.merge import is_blank
from runekeep_schemas.memory_types.model import MemoryType
from runekeep_schemas.recall_budget import PASSAGES, Candidate, Level, Line
from runekeep_schemas.recall_lines import embedded_line, lines_of_memory, subject
from runekeep_schemas.recall_tokens import weigh
from runekeep_server.memories import recall_text
from runekeep_server.memories.recall_lines import Item, LineScores
from runekeep_server.memories.recall_text import EntryText
from runekeep_storage.records import Memory, Passage
from runekeep_storage.search.found_texts import Depth
from runekeep_storage.search.line_cosines import LineCosines
from runekeep_storage.search.relevance import Calibration
from runekeep_storage.search.requests import Found

_PASSAGE_PENALTY: Final = 0.6
"""A line of a passage is shown before a line of a memory only if its score is higher by this much."""
_ASSISTANT_PENALTY: Final = 0.2
"""The assistant's messages hold more pleasantries and fewer facts than the user's."""
_AGENT_PENALTY: Final = 0.2
"""Memories about the agent's work, such as tools, come after facts unless their words answer the query."""
_OFFLINE_PENALTY: Final = 1.0
"""Memories of the engine `offline` come after passages."""
_OFFLINE: Final = "offline"
_AGENT_DIRECTORY: Final = "viking://agent/"


@dataclass(frozen=True, slots=True)
class Result:
    """A search result with its texts. `name` and `version`: as recorded for the session. `lines`: their scores and
    tokens; empty if it has no words to show. `head` and `whole`: the tokens of these texts; weighing a long text takes
    milliseconds, so it is done once, in a thread, and not in the transaction."""

    item: Memory | Passage
    score: float
    relevance: float | None
    name: str
    version: int
    text: EntryText
    lines: Sequence[Line]
    head: int
    whole: int | None

    @property
    def type(self) -> str:
        return self.item.memory_type if isinstance(self.item, Memory) else PASSAGES

    @property
    def section(self) -> str:
        return recall_text.MEMORIES if isinstance(self.item, Memory) else recall_text.SAID

    def candidate(self, given: Level, rounding: int) -> Candidate:
        """Returns the result as a candidate. `given`: the level at which the session has received it. `rounding`: added
        to the weight of its entry."""
        return Candidate(
            type=self.type,
            section=self.section,
            head=self.head + rounding,
            lines=self.lines,
            whole=None if self.whole is None else self.whole + rounding,
            joint=_JOINTS[self.section],
            score=self.score,
            given=given,
        )


_JOINTS: Final = {recall_text.MEMORIES: weigh(recall_text.QUOTE), recall_text.SAID: weigh(recall_text.GAP)}


def results(
    query: str,
    found: Sequence[Found],
    budget: int,
    types: Collection[MemoryType],
    calibration: Calibration | None = None,
    cosines: LineCosines | None = None,
) -> list[Result]:
    """Returns the search results with texts of at most `budget` tokens, except initial memories that nobody has filled
    in yet, and passages that say only what a memory says. Their marks are their ranks. `cosines`: of the query; None if
    it has no vector."""
    blank = {type.name: type for type in types if type.has_initial}
    agent_types = {type.name for type in types if type.directory.startswith(_AGENT_DIRECTORY)}
    found = [one for one in found if not _is_blank(one, blank)]
    # By kind, so that passages change little in the order of memories.
    best: dict[type, float] = {}
    for one in found:
        best[type(one.item)] = max(one.score, best.get(type(one.item), 0.0))
    items = [_item(one, one.score / (best[type(one.item)] or 1.0), agent_types, cosines) for one in found]
    scores = LineScores(items)
    repeats = scores.repeats({place for place, one in enumerate(found) if isinstance(one.item, Memory)})
    made = []
    for place, (one, item, of_lines) in enumerate(zip(found, items, scores.of(query), strict=True)):
        kept = [line for line, is_repeat in enumerate(repeats[place]) if not is_repeat]
        if item.lines and not kept:
            continue
        lines = [item.lines[line] for line in kept]
        relevance = None if calibration is None else calibration.relevance(one.score)
        made.append(_result(place + 1, one, relevance, lines, [of_lines[line] for line in kept], budget))
    return made


def passage_name(session: str | None, sequence: int | None) -> str:
    """Returns the name of a passage as recorded for a session."""
    return f"passage:{session}:{sequence}"


def _is_blank(found: Found, blank: Mapping[str, MemoryType]) -> bool:
    item = found.item
    return (
        isinstance(item, Memory)
        and item.memory_type in blank
        and found.depth is Depth.FULL
        and is_blank(blank[item.memory_type], item.content)
    )


def _item(found: Found, score: float, agent_types: Collection[str], cosines: LineCosines | None) -> Item:
    item = found.item
    if isinstance(item, Passage):
        is_assistants = item.speaker == "assistant"
        score -= _PASSAGE_PENALTY + _ASSISTANT_PENALTY * is_assistants
        lines = recall_text.lines_of_passage(item)
        return Item("", lines, score, [] if cosines is None else [found.ranked.cosine] * len(lines))
    is_offline = json.loads(item.extractor).get("engine") == _OFFLINE
    score -= _AGENT_PENALTY * (item.memory_type in agent_types) + _OFFLINE_PENALTY * is_offline
    about, lines = subject(item.uri, item.peer_id), lines_of_memory(item.abstract, item.content, item.overview)
    texts = [embedded_line(about, line) for line in lines]
    return Item(about, lines, score, [] if cosines is None else cosines.of(item, texts, found.ranked.cosine))


def _result(
    mark: int, found: Found, relevance: float | None, lines: Sequence[str], scores: Sequence[float], budget: int
) -> Result:
    item = found.item
    if isinstance(item, Memory):
        name, version = item.uri, item.version
        # What was not read is longer than any answer.
        text = recall_text.of_memory(mark, item, lines, budget if found.depth is Depth.FULL else 0)
    else:
        name, version = passage_name(item.session_id, item.sequence), item.created_at
        text = recall_text.of_passage(item, lines, budget)
    made = [Line(score, weigh(line)) for score, line in zip(scores, lines, strict=True)]
    whole = weigh(text.whole) if text.whole else None
    return Result(item, found.score, relevance, name, version, text, made, weigh(f"{text.head}:"), whole)
