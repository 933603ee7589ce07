"""The archive's views, made of sentences that were said and of counts."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from extractor.archive_summary import ArchiveSummary
from extractor.offline.classify import Statement
from extractor.offline.cues import DEED, PROBLEM, SOLUTION, is_open_task, is_question, is_request, is_small_talk
from extractor.offline.keywords import key_phrases
from extractor.offline.sentences import Sentence
from runekeep.v1 import common_pb2
from schemas.counters import Call

_STEPS: Final = 12
_TASKS: Final = 8
_CONCEPTS: Final = 8
_QUOTE: Final = 280
_LINE_QUOTE: Final = 90
# Behind the newest sentences an open question is still open.
_TAIL: Final = 6


def summarize(message_count: int, statements: Sequence[Statement], calls: Sequence[Call]) -> common_pb2.Summary:
    """A summary that quotes: the most salient statements are the key steps."""
    sentences = [statement.sentence for statement in statements]
    concepts = _concepts(sentences)
    request = _request(sentences)
    result = _result(sentences, request)
    tasks = _open_tasks(sentences)
    return ArchiveSummary(
        topic=", ".join(concepts[:2]) or ("tool calls" if calls else "conversation"),
        intent=_short(request) if request else "no request recognised",
        result=_short(result) if result else "no result recognised",
        status=f"{len(tasks)} open" if tasks else "nothing open",
        analysis=[
            _counts(message_count, sentences, calls),
            *map(_quote, _key_steps(statements)),
            *_tool_lines(calls),
        ],
        primary_request=_quote(request) if request else "No request was recognised.",
        key_concepts=concepts or ["None was recognised."],
        pending_tasks=[_quote(task) for task in tasks] or ["None was recognised."],
        note="By the offline extractor: sentences are picked and quoted, no model has read them.",
    ).rendered()


def _request(sentences: Sequence[Sentence]) -> Sentence | None:
    """The first thing asked for; without one, the first trouble told of, else the first statement."""
    people = [sentence for sentence in sentences if not sentence.assistant and not is_small_talk(sentence.text)]
    asked = (sentence for sentence in people if is_request(sentence.text))
    questions = (sentence for sentence in people if is_question(sentence.text) and len(sentence.words) > 5)
    statements = (sentence for sentence in people if not is_question(sentence.text))
    troubles = (sentence for sentence in people if PROBLEM.search(sentence.text))
    return next(asked, None) or next(questions, None) or next(troubles, None) or next(statements, None)


def _result(sentences: Sequence[Sentence], request: Sentence | None) -> Sentence | None:
    """After the request: the last thing that the agent stated, else that somebody got done or solved."""
    after = [
        sentence
        for sentence in sentences
        if request is not None
        and sentence.position > request.position
        and not is_question(sentence.text)
        and not is_small_talk(sentence.text)
    ]
    told = (s for s in reversed(after) if s.assistant)
    done = (s for s in reversed(after) if SOLUTION.search(s.text) or DEED.search(s.text))
    return next(told, None) or next(done, None)


def _open_tasks(sentences: Sequence[Sentence]) -> list[Sentence]:
    tasks = [s for s in sentences if not s.assistant and is_open_task(s.text)][-_TASKS:]
    tail = [s for s in sentences[-_TAIL:] if is_question(s.text) and not s.assistant and not is_small_talk(s.text)]
    if tail and all(not later.assistant for later in sentences[tail[-1].position + 1 :]):
        tasks.append(tail[-1])
    return tasks[-_TASKS:]


def _key_steps(statements: Sequence[Statement]) -> list[Sentence]:
    steps = [
        statement for statement in statements if statement.salience > 0 and not is_small_talk(statement.sentence.text)
    ]
    ranked = sorted(steps, key=lambda statement: (-statement.salience, statement.sentence.position))
    return sorted((statement.sentence for statement in ranked[:_STEPS]), key=lambda sentence: sentence.position)


def _concepts(sentences: Sequence[Sentence]) -> list[str]:
    """Key phrases; the names of those who talk are none."""
    speakers = {part.lower() for sentence in sentences for part in sentence.speaker.split()}
    phrases = key_phrases([sentence.text for sentence in sentences], _CONCEPTS + 2 * len(speakers))
    return [
        phrase
        for phrase in phrases
        if not any(speaker.startswith(word.lower()) for word in phrase.split() for speaker in speakers)
    ][:_CONCEPTS]


def _counts(message_count: int, sentences: Sequence[Sentence], calls: Sequence[Call]) -> str:
    speakers = list(dict.fromkeys(sentence.speaker for sentence in sentences))
    days = sorted({sentence.day for sentence in sentences if sentence.day is not None})
    text = f"{message_count} message{'' if message_count == 1 else 's'}"
    if speakers:
        text += f" of {', '.join(speakers[:6])}" + (" and others" if len(speakers) > 6 else "")
    if days:
        text += f", {days[0]}" + (f" to {days[-1]}" if days[-1] != days[0] else "")
    return text + (f"; {len(calls)} tool call{'' if len(calls) == 1 else 's'}" if calls else "") + "."


def _tool_lines(calls: Sequence[Call]) -> list[str]:
    totals = Counter(call.tool_name for call in calls)
    successes = Counter(call.tool_name for call in calls if call.succeeded)
    return [f"Tool `{name}`: {count} called, {successes[name]} completed." for name, count in totals.most_common(8)]


def _quote(sentence: Sentence) -> str:
    when = f" ({sentence.day})" if sentence.day else ""
    return f"{sentence.speaker}{when}: {_cut(sentence.text, _QUOTE)}"


def _short(sentence: Sentence) -> str:
    return _cut(sentence.text, _LINE_QUOTE)


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    space = head.rfind(" ")
    return (head[:space] if space > limit // 2 else head).rstrip(" ,;:") + "…"
