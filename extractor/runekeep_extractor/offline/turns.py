"""Reads one turn: the fingerprint of the user's messages, and the summary of the assistant's answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from runekeep.v1 import common_pb2, extractor_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_extractor.engine.turn_records import fingerprint_to_wire
from runekeep_extractor.offline.language import Language, languages
from runekeep_extractor.offline.sentences import Sentence, sentences_of, split_text, words_of
from runekeep_extractor.offline.statements import FACT, PREFERENCE, THING, Statement, rule_of
from runekeep_extractor.offline.words import (
    content_words,
    head_noun,
    key_phrases,
    noun_phrase,
    phrase_of,
    stems,
)
from runekeep_schemas.turns.checks import KEY_LENGTH, QUERY_LENGTH, TOPIC_LENGTH
from runekeep_schemas.turns.fingerprint import (
    MAX_QUERIES,
    MAX_SIGNALS,
    MAX_TOPICS,
    OBJECTIVE_LENGTH,
    Fingerprint,
    Query,
    Signal,
)
from runekeep_schemas.turns.summary import ITEM_LENGTH, TEXT_LENGTH
from runekeep_schemas.turns.text import cut, line

MAX_SENTENCES: Final = 200
"""Maximum per turn. A request stands before or after pasted text."""
MAX_ITEMS: Final = 5
MAX_TITLE_CHARS: Final = 60
MAX_VALUE_CHARS: Final = 80
MAX_RULE_CHARS: Final = 200
ASSERTIONS, EXCEPTIONS, FACTS = "assertions", "exceptions", "facts"
_NAME: Final = re.compile(r"(?:[A-ZÀ-Þ][\w'’-]*)(?: [A-ZÀ-Þ0-9][\w'’-]*)*")
_QUOTED: Final = re.compile(r"[\"“„«][^\"“”„«»]*[\"”“»]")
_KEY: Final = re.compile(r"^\s*(?P<key>[\w .-]{1,40}?)\s*:\s*(?P<rest>.+)|\bkey\s*[=:]\s*(?P<named>[\w-]+)", re.I)
# Scopes of signals that hold only for the task at hand.
_PASSING_SCOPES: Final = frozenset({pb.SIGNAL_SCOPE_OBJECTIVE, pb.SIGNAL_SCOPE_ARTIFACT, pb.SIGNAL_SCOPE_THREAD})
_WISHES: Final = frozenset({pb.SIGNAL_SEVERITY_MUST, pb.SIGNAL_SEVERITY_PREFER})


def turn_memory(
    turn_id: str, messages: Sequence[common_pb2.Message], *, opens: bool, spec: str = ""
) -> extractor_service_pb2.TurnMemory:
    """Returns the memory of a turn. `opens`: it is the first of its session; `spec`: what counts as an assistant
    signal; empty means nothing.
    """
    said = [one for one in meant_by_user(messages) if not one.has("small_talk")]
    request = _request(said)
    signals: dict[str, list[Signal]] = {ASSERTIONS: [], EXCEPTIONS: [], FACTS: []}
    for sentence in said:
        said_words = {word.lower() for word in words_of(sentence.text)}
        for name, signal in _signals(sentence):
            # Written-out contractions are different words, so such a value is not a quotation.
            if not {word.lower() for word in words_of(_words_in(signal.value))} <= said_words:
                continue
            if len(signals[name]) < MAX_SIGNALS and (signal.key, signal.value) not in (
                (one.key, one.value) for one in signals[name]
            ):
                signals[name].append(signal)
    objective = line(_without_lead(request)) if request else _opening(messages)
    fingerprint = Fingerprint(
        # The enclosing TurnMemory already names the turn.
        turn_id="",
        objective=cut(objective, OBJECTIVE_LENGTH),
        topics=_topics(said),
        assertions=tuple(signals[ASSERTIONS]),
        exceptions=tuple(signals[EXCEPTIONS]),
        facts=tuple(signals[FACTS]),
        assistant_signals=tuple(_promotions(messages, spec)),
        ctx_retrieval_queries=tuple(_queries(said)),
        conversation_title=cut(re.split(r"[,.;:!?](?:\s|$)", objective, maxsplit=1)[0], MAX_TITLE_CHARS)
        if opens
        else "",
    )
    return extractor_service_pb2.TurnMemory(
        turn_id=turn_id, fingerprint=fingerprint_to_wire(fingerprint), summary=_account(messages, request)
    )


def meant_by_user(messages: Sequence[common_pb2.Message]) -> list[Sentence]:
    """Returns the sentences that a turn's users mean themselves: no quotations, jokes or pasted material."""
    sentences, _ = sentences_of([(one, "") for one in messages if one.role == common_pb2.ROLE_USER])
    if len(sentences) > MAX_SENTENCES:
        sentences = [*sentences[: MAX_SENTENCES // 2], *sentences[-MAX_SENTENCES // 2 :]]
    meant: list[Sentence] = []
    closed = -1
    for sentence in sentences:
        if sentence.sequence == closed:
            continue
        if sentence.has("takes_back") and meant and meant[-1].sequence == sentence.sequence:
            meant.pop()
        if sentence.has("material"):
            closed = sentence.sequence
            sentence = replace(sentence, text=sentence.text.partition(":")[0])
        if not sentence.has("reported", "joke"):
            meant.append(sentence)
    return meant


def confirmed_by_turns(
    sentences: Sequence[Sentence],
    statements: Sequence[Statement],
    messages: Iterable[common_pb2.Message],
    turns: Iterable[pb.CandidateTurn],
) -> list[Statement]:
    """Returns statements for sentences that no rule matches but that a fingerprint of their turn confirms: they
    contain, word for word, a wish or a certain fact that outlasts the task.
    """
    values = {
        one.turn.turn_id: [
            *((PREFERENCE, signal) for signal in one.turn.fingerprint.assertions if signal.severity in _WISHES),
            *((FACT, signal) for signal in one.turn.fingerprint.facts if signal.severity == pb.SIGNAL_SEVERITY_HIGH),
        ]
        for one in turns
    }
    turn_of = {one.sequence: one.turn_id for one in messages if one.role == common_pb2.ROLE_USER}
    known = {one.sentence.position for one in statements}
    found = []
    for one in sentences:
        if one.assistant or one.position in known or one.language is None:
            continue
        if one.has("question", "reported", "doubt", "request"):
            continue
        said = f" {' '.join(words_of(one.text))} ".lower()
        for kind, signal in values.get(turn_of.get(one.sequence, ""), ()):
            value = signal.value.string_value
            words = " ".join(words_of(value)).lower()
            if signal.scope not in _PASSING_SCOPES and content_words(value) and f" {words} " in said:
                found.append(Statement(one, one.language, kind, one.text, noun_phrase(value, one.language)))
                break
    return [one for one in found if one.name]


def _request(said: Sequence[Sentence]) -> Sentence | None:
    """Returns the sentence that asks for an action, else a question, a problem, or the first statement."""
    for cue in ("order", "request", "question", "problem"):
        found = next((one for one in said if one.language and one.language.has(cue, _plain(one))), None)
        if found is not None:
            return found
    return next(iter(said), None)


def _plain(sentence: Sentence) -> str:
    """Returns the sentence as patterns expect it, without its lead-in."""
    return sentence.language.cue("lead_in").sub("", sentence.plain) if sentence.language else sentence.text


def _without_lead(sentence: Sentence) -> str:
    text = sentence.language.cue("lead_in").sub("", sentence.text) if sentence.language else sentence.text
    return text[:1].upper() + text[1:]


def _opening(messages: Sequence[common_pb2.Message]) -> str:
    """Returns the user's first text that is too long for an objective and contains no sentence; empty if
    there is none.
    """
    for message in messages:
        for part in message.parts if message.role == common_pb2.ROLE_USER else ():
            text = line(part.text.text)
            if len(text) > OBJECTIVE_LENGTH and not any(split_text(part.text.text)):
                return text
    return ""


def _topics(said: Sequence[Sentence]) -> tuple[str, ...]:
    left_out = frozenset[str]().union(*(language.no_topics for language in languages()))
    found: dict[str, None] = {}
    for phrase in key_phrases([one.text for one in said], 2 * MAX_TOPICS):
        words = [word for word in phrase.lower().split() if word not in left_out]
        if words:
            found.setdefault(" ".join(words)[:TOPIC_LENGTH], None)
    return tuple(found)[:MAX_TOPICS]


def _signals(sentence: Sentence) -> Iterator[tuple[str, Signal]]:
    """Yields the signals of a sentence, each with the list that it belongs to."""
    language = sentence.language
    if language is None:
        return
    plain = _plain(sentence)
    asks = language.has("request", plain)
    if language.has("question", plain) and not asks:
        return
    if language.has("unsure", plain):
        return
    scope = (
        "conversation"
        if language.has("standing", plain)
        else "objective"
        if language.has("objective_scope", plain)
        else ""
    )
    is_soft = language.has("soft", plain)
    if language.has("conditional", plain):
        if language.has("must", plain) or (language.has("no_denial", plain) is False and language.has("denied", plain)):
            kind = EXCEPTIONS if language.has("denied", plain) else ASSERTIONS
            severity = "do_not" if kind == EXCEPTIONS else "must"
            yield (
                kind,
                _signal(
                    head_noun(plain, language) or "rule",
                    {"rule": cut(line(sentence.text), MAX_RULE_CHARS)},
                    severity,
                    scope,
                ),
            )
        return
    for key, value in _bounds(plain, language):
        yield ASSERTIONS, _signal(key, value, "prefer" if is_soft else "must", scope)
    rest = language.cue("no_denial").sub(" ", plain)
    is_denied = language.has("denied", rest)
    for key, pattern in language.tables.get("classes", {}).items():
        match = pattern.search(rest)
        if match is not None and not is_denied:
            value = next(filter(None, (match.groupdict().get("value"), match.groupdict().get("alone"))), "")
            yield ASSERTIONS, _signal(key, value, "must" if language.has("must", rest) else "prefer", scope)
            rest = f"{rest[: match.start()]} {rest[match.end() :]}"
    for rule in language.wishes:
        match = rule.pattern.search(rest)
        if match is None or (rule.value == "rule" and rest != plain):
            continue
        severity = {"must": "prefer", "do_not": "avoid"}.get(rule.severity, rule.severity) if is_soft else rule.severity
        if (signal := _wish(match, rule.value, severity, scope, sentence)) is not None:
            yield rule.list, signal
            rest = rest[: match.start()]
    stated = None if asks else rule_of(plain, language)
    match = stated.pattern.match(plain) if stated is not None and stated.kind in (FACT, THING) else None
    if stated is not None and match is not None:
        groups = match.groupdict()
        subject = groups.get("subject") or ""
        # In `My wife is ...` the predicate stands behind the subject.
        about = plain[match.end("subject") :] if subject else groups.get("object") or ""
        value = groups.get("name") or (about.strip(" .,;!") if subject else phrase_of(about, language))
        key = groups.get("what") or (head_noun(subject, language) if subject else stated.slot)
        if value and key:
            severity = "medium" if language.has("hedged", plain) else "high"
            yield FACTS, _signal(key.lower(), value, severity, scope)


def _signal(key: str, value: Any, severity: str, scope: str = "") -> Signal:
    """Returns a signal with its key, and its value if that is a text, cut to the maximum length."""
    return Signal(key[:KEY_LENGTH], cut(value, MAX_VALUE_CHARS) if isinstance(value, str) else value, severity, scope)


def _words_in(value: Any) -> str:
    """Returns the text of a signal's value."""
    if isinstance(value, dict):
        value = next(iter(value.values()))
    return " ".join(value) if isinstance(value, list) else value if isinstance(value, str) else ""


def _wish(match: re.Match[str], form: str, severity: str, scope: str, sentence: Sentence) -> Signal | None:
    language = sentence.language
    assert language is not None
    groups = match.groupdict()
    about = groups.get("object") or groups.get("subject") or ""
    if form == "rule":
        key = head_noun(phrase_of(about, language), language) or head_noun(about, language)
        return _signal(key, {"rule": cut(line(sentence.text), MAX_RULE_CHARS)}, severity, scope) if key else None
    if form == "exclude":
        first, *others = language.cue("list_joint").split(language.cue("list_end").split(f"{about} ", maxsplit=1)[0])
        things = [phrase_of(first, language), *(phrase_of(one, language) for one in others if len(one.split()) <= 2)]
        things = [thing for thing in things if thing][:MAX_ITEMS]
        key = head_noun(things[0], language) if things else ""
        return _signal(key, {"exclude": things}, severity, scope) if key else None
    value = phrase_of(about, language)
    key = head_noun(groups.get("subject") or "", language) or head_noun(value, language)
    return _signal(key, value, severity, scope) if value and key else None


def _bounds(plain: str, language: Language) -> Iterator[tuple[str, Any]]:
    """Yields the bounds of amounts by key, as `{max: 120}`. Denied amounts are left out."""
    bounds = language.tables.get("bounds", {})
    for key, unit in language.tables.get("amounts", {}).items():
        before = "|".join(f"(?P<{name}>{bound.pattern})" for name, bound in bounds.items())
        number = rf"(?:{unit.pattern})?\s?(?P<number>\d[\d,]*(?:\.\d+)?)(?:\s?(?:{unit.pattern})\b)?"
        for match in re.finditer(rf"(?:\b(?:{before})\s+)?{number}", plain, re.I):
            has_unit = re.search(unit.pattern, match[0][len(match[0].split(match["number"])[0]) :], re.I) or any(
                sign in match[0] for sign in "€$£"
            )
            name = next((name for name in bounds if match[name]), "")
            if key == "budget" and not name and language.has("limit", plain):
                name, has_unit = "max", True
            if name and has_unit and not language.has("not", plain[: match.start()]):
                text = match["number"].replace(",", "")
                yield key, {name: float(text) if "." in text else int(text)}
                break


def _promotions(messages: Sequence[common_pb2.Message], spec: str) -> Iterator[Signal]:
    """Yields what the assistant promotes among the subjects of the caller's spec, each once with its
    strongest wording.
    """
    sentences, _ = sentences_of([(one, None) for one in messages if one.role == common_pb2.ROLE_ASSISTANT])
    found: dict[tuple[str, str], str] = {}
    ranks = ("mention", "recommend", "strong_promote")
    for key, wanted in _spec(spec):
        for one in sentences:
            language = one.language
            if language is None or not wanted & stems([one.text]) or one.has("question", "against", "reported"):
                continue
            promotes = language.tables.get("promotes", {})
            severity = next((name for name, pattern in promotes.items() if pattern.search(one.plain)), "mention")
            value = _promoted(one, wanted, language)
            if value and (severity != "mention" or value[:1].isupper()):
                strongest = max(found.get((key, value), "mention"), severity, key=ranks.index)
                found[key, value] = strongest
    for (key, value), severity in list(found.items())[:MAX_SIGNALS]:
        yield _signal(key, value, severity)


def _spec(spec: str) -> Iterator[tuple[str, set[str]]]:
    """Yields the key of each line of a spec, and the stems of its words."""
    for text in filter(None, (part.strip() for part in re.split(r"[\n]+", spec))):
        match = _KEY.search(text)
        key = (match["key"] or match["named"]) if match else ""
        wanted = stems([match["rest"] if match and match["rest"] else text])
        if wanted:
            yield key or head_noun(text, languages()[0]), wanted


def _promoted(sentence: Sentence, wanted: set[str], language: Language) -> str:
    """Returns the promoted name: one with a word of the spec, else the last name, else the noun phrase of the word
    itself.
    """
    names = [
        name[0]
        for name in _NAME.finditer(sentence.text)
        if stems([name[0]]) and (name.start() or wanted & stems([name[0]]))
    ]
    for name in names:
        if wanted & stems([name]):
            return name
    words = sentence.text.split()
    place = next((n for n, word in enumerate(words) if wanted & stems([word])), None)
    if names and (place is None or not names[-1].islower()):
        return names[-1]
    return phrase_of(" ".join(words[max(0, place - 1) :]), language) if place is not None else ""


def _queries(said: Sequence[Sentence]) -> list[Query]:
    """Returns searches for what the user refers back to; none if the text does not say what to look for."""
    found: list[Query] = []
    for one in said:
        for where, pattern in (one.language.tables.get("references", {}) if one.language else {}).items():
            match = pattern.search(one.plain)
            if match is None or one.language is None:
                continue
            if words := content_words(one.text):
                found.append(Query(where, cut(" ".join(words), QUERY_LENGTH), cut(line(match[0]), QUERY_LENGTH)))
            break
    return found[:MAX_QUERIES]


def _account(messages: Sequence[common_pb2.Message], request: Sentence | None) -> pb.TurnSummary:
    """Returns what the user wanted and attached, and what the assistant claims to have answered, done and left open."""
    sentences, _ = sentences_of([(one, None) for one in messages if one.role == common_pb2.ROLE_ASSISTANT])
    told = [one for one in sentences if not one.has("question")]
    items: dict[str, list[str]] = {}
    for one in told:
        tables = one.language.tables.get("account", {}) if one.language else {}
        for part in _parts(one):
            # If two exclude each other, the first one holds.
            names = [
                name for name, pattern in tables.items() if one.language and _holds(part, name, pattern, one.language)
            ]
            for name in names:
                if name != "done" or "not_done" not in names:
                    items.setdefault(name, []).append(cut(line(part), ITEM_LENGTH))
    return pb.TurnSummary(
        user_inquiry=cut(line(request.text), TEXT_LENGTH) if request else "",
        user_message_description=_attached(messages),
        assistant_answer=_answer(told),
        delivered_to_user=cut(" ".join(items.get("delivered", ())), TEXT_LENGTH),
        done=items.get("done", [])[:MAX_ITEMS],
        not_done=items.get("not_done", [])[:MAX_ITEMS],
        assumptions=items.get("assumptions", [])[:MAX_ITEMS],
        risks=items.get("risks", [])[:MAX_ITEMS],
    )


def _parts(sentence: Sentence) -> list[str]:
    return sentence.language.cue("part").split(sentence.text) if sentence.language else []


def _holds(part: str, name: str, pattern: re.Pattern[str], language: Language) -> bool:
    """Returns whether the part asserts it: it is not quoted or conditional, and a completed action is not denied."""
    plain = _QUOTED.sub(" ", language.write_out(part))
    match = pattern.search(plain)
    if match is None or language.has("open", plain[: match.start()]):
        return False
    return name in ("not_done", "assumptions") or not language.has("denied", plain)


def _answer(told: Sequence[Sentence]) -> str:
    """Returns the assistant's sentences from the first substantial one on, as far as there is room."""
    text = ""
    for one in told:
        if one.has("small_talk"):
            continue
        if len(longer := f"{text} {line(one.text)}".strip()) > TEXT_LENGTH:
            return text or cut(line(one.text), TEXT_LENGTH)
        text = longer
    return text


def _attached(messages: Sequence[common_pb2.Message]) -> str:
    """Returns the kind and description of what users attached."""
    found = []
    for message in messages:
        for part in message.parts if message.role == common_pb2.ROLE_USER else ():
            if part.WhichOneof("part") == "image":
                found.append(f"image: {part.image.caption}" if part.image.caption else "image")
            elif part.WhichOneof("part") == "context":
                found.append(f"context {part.context.uri}")
    return cut("; ".join(cut(line(one), ITEM_LENGTH) for one in found[:MAX_ITEMS]), TEXT_LENGTH)
