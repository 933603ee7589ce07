"""Builds the archive's views from quoted sentences and counts."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from runekeep.v1 import common_pb2
from runekeep_extractor.engine.archive_summary import ArchiveSummary
from runekeep_extractor.offline.sentences import Sentence
from runekeep_extractor.offline.statements import NONE, Statement
from runekeep_extractor.offline.words import key_phrases
from runekeep_schemas.documents.counters import Call

MAX_STEPS: Final = 12
MAX_TASKS: Final = 8
MAX_CONCEPTS: Final = 8
MAX_TOOLS: Final = 8
MAX_SPEAKERS: Final = 6
MAX_QUOTE_CHARS: Final = 280
MAX_LINE_CHARS: Final = 90


def summarize(
    message_count: int, sentences: Sequence[Sentence], statements: Sequence[Statement], calls: Sequence[Call]
) -> common_pb2.Summary:
    """Returns a summary that quotes: kept statements and the agent's last answer are its key steps."""
    concepts = _concepts(sentences)
    request = _request(sentences)
    result = _result(sentences, request)
    tasks = [one for one in sentences if not one.assistant and one.has("task") and not one.has("small_talk")][
        -MAX_TASKS:
    ]
    kept = [one.sentence for one in statements if one.kind != NONE]
    steps = sorted({one.position: one for one in kept[:MAX_STEPS]}.values(), key=lambda one: one.position)
    return ArchiveSummary(
        topic=", ".join(concepts[:2]) or ("tool calls" if calls else "conversation"),
        intent=_cut(request.text, MAX_LINE_CHARS) if request else "no request recognised",
        result=_cut(result.text, MAX_LINE_CHARS) if result else "no result recognised",
        status=f"{len(tasks)} open" if tasks else "nothing open",
        analysis=[_counts(message_count, sentences, calls), *map(_quote, steps), *_tool_lines(calls)],
        primary_request=_quote(request) if request else "No request was recognised.",
        key_concepts=concepts or ["None was recognised."],
        pending_tasks=[_quote(task) for task in tasks] or ["None was recognised."],
        note="By the offline extractor: sentences are picked and quoted, no model has read them.",
    ).rendered()


def _request(sentences: Sequence[Sentence]) -> Sentence | None:
    """Returns the first request, else the first question, problem, or statement of a user."""
    people = [one for one in sentences if not one.assistant and not one.has("small_talk")]
    for cue in ("request", "question", "problem"):
        if found := next((one for one in people if one.has(cue)), None):
            return found
    return next(iter(people), None)


def _result(sentences: Sequence[Sentence], request: Sentence | None) -> Sentence | None:
    """Returns the agent's last statement after the request, else the last sentence that reports a result."""
    if request is None:
        return None
    after = [
        one
        for one in reversed(sentences[request.position + 1 :])
        if not one.has("question") and not one.has("small_talk")
    ]
    statement = next((one for one in after if one.assistant), None)
    return statement or next((one for one in after if one.has("done")), None)


def _concepts(sentences: Sequence[Sentence]) -> list[str]:
    """Returns key phrases, without the names of the speakers."""
    speakers = {part.lower() for sentence in sentences for part in sentence.speaker.split()}
    phrases = key_phrases([sentence.text for sentence in sentences], MAX_CONCEPTS + 2 * len(speakers))
    return [phrase for phrase in phrases if not speakers & set(phrase.lower().split())][:MAX_CONCEPTS]


def _counts(message_count: int, sentences: Sequence[Sentence], calls: Sequence[Call]) -> str:
    speakers = list(dict.fromkeys(sentence.speaker for sentence in sentences))
    days = sorted({sentence.day for sentence in sentences if sentence.day is not None})
    text = f"{message_count} message{'' if message_count == 1 else 's'}"
    if speakers:
        text += f" of {', '.join(speakers[:MAX_SPEAKERS])}" + (" and others" if len(speakers) > MAX_SPEAKERS else "")
    if days:
        text += f", {days[0]}" + (f" to {days[-1]}" if days[-1] != days[0] else "")
    return text + (f"; {len(calls)} tool call{'' if len(calls) == 1 else 's'}" if calls else "") + "."


def _tool_lines(calls: Sequence[Call]) -> list[str]:
    totals = Counter(call.tool_name for call in calls)
    successes = Counter(call.tool_name for call in calls if call.succeeded)
    most = totals.most_common(MAX_TOOLS)
    return [f"Tool `{name}`: {count} called, {successes[name]} completed." for name, count in most]


def _quote(sentence: Sentence) -> str:
    when = f" ({sentence.day})" if sentence.day else ""
    return f"{sentence.speaker}{when}: {_cut(sentence.text, MAX_QUOTE_CHARS)}"


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    space = head.rfind(" ")
    return (head[:space] if space > limit // 2 else head).rstrip(" ,;:") + "…"
