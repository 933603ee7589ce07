"""Asks a model which earlier turns matter for the current turn, and how the user reacted to earlier answers.

The model sees the reconciler's sections of the contract, as data between delimiters. It answers together with the notes
of the turn.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_extractor.answers.answer import AnswerPart, Lines, as_list
from runekeep_extractor.answers.parse import plain_name, with_names
from runekeep_extractor.engine.interface import Job
from runekeep_extractor.prompts.delimiters import fenced
from runekeep_extractor.prompts.records import line
from runekeep_extractor.prompts.split import tokens
from runekeep_schemas.documents.uris import IdKind, is_safe_id
from runekeep_schemas.turns.feedback import MAX_FOUND_REACTIONS, MIN_CONFIDENCE, TEXT_LENGTH
from runekeep_schemas.turns.sections import CURRENT_TURN
from runekeep_schemas.turns.selection import MAX_BUCKETS, MAX_LOCAL_MEMORIES, MAX_TURNS
from runekeep_schemas.turns.text import cut
from runekeep_schemas.turns.text import line as words

SELECTION: Final = ("local_memories_turn_ids", "turn_ids", "memory_bucket_ids")
FEEDBACK: Final = "feedback"
# Bound of the contract for each list.
_MAX_IDS: Final = 64

SELECTION_RULES: Final = f"""\
# What to select
The turn is under way: the answer is not written yet. The context shows what was said before, newest first. Agents \
that act next see of it only what you select.
- local_memories_turn_ids: turns whose TURN MEMORIES matter for what the user wants now, the most relevant first, at \
most {MAX_LOCAL_MEMORIES}: wishes and exclusions that still hold, facts that the answer rests on, the same objective. \
Where two contradict each other, the newer one.
- turn_ids: PRIOR TURNS whose course one has to know to act now, at most {MAX_TURNS}.
- memory_bucket_ids: ids of the buckets that are about what the user wants now, at most {MAX_BUCKETS}.
- Ids as they are shown, of earlier turns alone. Where nothing earlier matters, empty lists are a good answer.
"""
FEEDBACK_RULES: Final = f"""\
# Feedback
feedback: what the USER says in this turn about the answer of an earlier turn: content with it, not content, or \
neither. A new wish alone is none, and so is an opinion about anything else. As a rule there is none.
- turn: id of that earlier turn; empty for the newest one.
- reaction: `ok`, `not_ok` or `neutral`. text: in a sentence what the user liked or missed, in the user's language.
- confidence: 0 to 1, how sure you are that it is about that answer; below {MIN_CONFIDENCE:.2f} leave it out.
"""


class ReactionAnswer(AnswerPart):
    turn: str
    reaction: Literal["ok", "not_ok", "neutral"]
    text: str
    confidence: float


class SelectionAnswer(AnswerPart):
    """Parts of an answer about a turn that is under way."""

    local_memories_turn_ids: Lines
    turn_ids: Lines
    memory_bucket_ids: Lines
    feedback: list[ReactionAnswer]


_REACTIONS: Final = {
    "ok": pb.REACTION_OK,
    "notok": pb.REACTION_NOT_OK,
    "neutral": pb.REACTION_NEUTRAL,
    "none": pb.REACTION_UNSPECIFIED,
}


def context_sections(job: Job, most: int) -> list[str]:
    """Returns sections of the user message: the context without the current turn, which is shown whole, and the
    buckets. At most about `most` tokens; of each block the newest rows are kept.
    """
    blocks = [one.text.split("\n") for one in job.context.sections if one.header != CURRENT_TURN]
    buckets = [line(_bucket_record(one)) for one in job.context.buckets]
    share = most // (len(blocks) + bool(buckets)) if blocks or buckets else 0
    lines = "\n\n".join("\n".join(_fitting(block, share)) for block in blocks).split("\n")
    sections = ["# Context\n\n" + fenced(job, "context", lines)]
    if buckets:
        sections.append("# Buckets\n\n" + fenced(job, "buckets", _fitting(buckets, share)))
    return sections


def _fitting(rows: Sequence[str], most: int) -> list[str]:
    """Returns the first rows that have at most `most` tokens in all."""
    kept: list[str] = []
    for row in rows:
        most -= tokens(row)
        if most < 0:
            break
        kept.append(row)
    return kept


def _bucket_record(bucket: pb.MemoryBucket) -> dict[str, Any]:
    return {
        "bucket": bucket.bucket_id,
        "name": bucket.name,
        "short_desc": bucket.short_desc,
        "topics": list(bucket.topic_centroid),
        "objective": bucket.objective_text,
    }


def read_selection(data: Mapping[str, Any], *, cut: bool) -> tuple[pb.TurnSelection | None, int]:
    """Returns the selection, and the number of entries that are not ids. `cut`: the answer ended too early.

    The selection is None if the answer has none, or if it is empty only because it could not be read: once stored, an
    empty selection means that nothing earlier matters. The server drops ids that were not offered.
    """
    there = [name for name in SELECTION if name in data]
    entries = [as_list(data.get(name)) for name in SELECTION]
    memories, turns, buckets = read = [[one for one in map(_id, some) if one][:_MAX_IDS] for some in entries]
    dropped = sum(map(len, entries)) - sum(map(len, read))
    is_whole = len(there) == len(SELECTION) if cut else bool(there)
    if not is_whole or ((cut or dropped) and not any(read)):
        return None, dropped
    return pb.TurnSelection(local_memories_turn_ids=memories, turn_ids=turns, memory_bucket_ids=buckets), dropped


def _id(given: object) -> str:
    """Returns an id, even if the model copied the text around it: `[TURN turn_id=t-1]`. Empty if it is not an id."""
    name = given.strip(" []()").rpartition("=")[2].strip() if isinstance(given, str) else ""
    return name if is_safe_id(IdKind.SESSION, name) else ""


def read_feedback(given: object) -> tuple[list[pb.Feedback], int]:
    """Returns reactions and the number of dropped entries: entries without text or number, below the minimum
    confidence, about something that is not a turn, or beyond the limit.
    """
    read: list[pb.Feedback] = []
    entries = as_list(given)
    for entry in entries:
        entry = with_names(entry, ReactionAnswer.model_fields) if isinstance(entry, Mapping) else {}
        reaction = _REACTIONS.get(plain_name(entry.get("reaction", "none")))
        confidence, text = _number(entry.get("confidence")), entry.get("text")
        said = cut(words(text), TEXT_LENGTH) if isinstance(text, str) else ""
        if reaction is None or not said or not MIN_CONFIDENCE <= confidence <= 1 or len(read) == MAX_FOUND_REACTIONS:
            continue
        named = entry.get("turn")
        turn_id = _id(named)
        # Without a turn, a reaction concerns the newest one. An invalid id must not be taken for that.
        if named not in (None, "") and not is_safe_id(IdKind.TURN, turn_id):
            continue
        read.append(
            pb.Feedback(
                turn_id=turn_id,
                reaction=reaction,
                text=said,
                origin=pb.FEEDBACK_ORIGIN_MACHINE,
                confidence=confidence,
            )
        )
    return read, len(entries) - len(read)


def _number(value: object) -> float:
    """Returns the number, or 0 if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 0.0
    try:
        return float(value)
    except (ValueError, OverflowError):
        return 0.0
