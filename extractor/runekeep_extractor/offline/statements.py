"""Classifies sentences: which ones state something worth keeping, of which kind, and about what."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final

from runekeep_extractor.offline.dates import Dated, find_dates, lies_ahead
from runekeep_extractor.offline.guard import UNGUARDED, RuleGuard
from runekeep_extractor.offline.language import Language, StatementRule
from runekeep_extractor.offline.sentences import Sentence, words_of
from runekeep_extractor.offline.words import noun_phrase

FACT: Final = "fact"
PREFERENCE: Final = "preference"
THING: Final = "thing"
EVENT: Final = "event"
NOTE: Final = "note"
NONE: Final = ""

_DOUBTS: Final = ("doubt", "passing", "you", "small_talk")
# Minimum number of words before a clause break for the part to be a clause of its own.
_MIN_CLAUSE_WORDS: Final = 3


@dataclass(frozen=True, slots=True)
class Statement:
    """A clause that is kept.

    `text` is the clause as said, with absolute dates; `name` is a noun phrase for its subject; `when` is its date, as
    in `Dated`. A statement of kind NONE only takes back an earlier one. `corrects`: it is worded as a correction;
    `retracts`: it certainly takes something back; `forgets`: it asks to forget something.
    """

    sentence: Sentence
    language: Language
    kind: str
    text: str
    name: str = ""
    what: str = ""
    when: str = ""
    slot: str = ""
    single: bool = False
    asked: bool = False
    corrects: bool = False
    retracts: bool = False
    forgets: bool = False

    @property
    def line(self) -> str:
        """The statement as a line of a memory."""
        day = f" ({self.sentence.day})" if self.sentence.day else ""
        return f"{self.sentence.speaker}{day}: {self.text}"


def classify(sentences: Sequence[Sentence], guard: RuleGuard = UNGUARDED) -> list[Statement]:
    """Returns the statements of the sentences, in order. A sentence that a rule cannot read is left out."""
    found: list[Statement] = []
    reader = _MessageReader()
    for sentence in sentences:
        found += guard.run("statements", partial(reader.read, sentence), [])
    return found


@lru_cache(maxsize=8192)
def rule_of(text: str, language: Language) -> StatementRule | None:
    """Returns the rule that a line of a memory matches, if any."""
    plain = language.cue("lead_in").sub("", language.write_out(text))
    return next((rule for rule in language.statements if rule.pattern.match(plain)), None)


class _MessageReader:
    """Reads sentences in order, and tracks which messages hand over material or a list to remember."""

    def __init__(self) -> None:
        self._framed = -1
        self._asked = -1

    def read(self, sentence: Sentence) -> list[Statement]:
        """Returns the statements of one sentence."""
        language = sentence.language
        if language is None or sentence.assistant or sentence.sequence == self._framed:
            return []
        plain = language.cue("lead_in").sub("", sentence.plain)
        if (forgets := language.cue("forget").match(plain)) is not None:
            return [Statement(sentence, language, NONE, forgets["rest"], corrects=True, forgets=True)]
        asked = language.cue("asked").match(plain)
        if asked is None and (language.has("frame", plain) or language.has("material", plain)):
            self._framed = sentence.sequence
            return []
        text = sentence.text
        if asked is not None:
            text = asked["rest"]
            if len(words_of(text)) < 2:
                self._asked = sentence.sequence
                return []
        is_asked = asked is not None or sentence.sequence == self._asked
        is_question = sentence.has("question") and not sentence.has("standing_request")
        if not is_asked and (is_question or sentence.has("reported", "joke", "wait")):
            return []
        statements = [
            statement
            for clause in _clauses(text, language)
            if (statement := _read_clause(clause, sentence, language, is_asked)) is not None
        ]
        if statements or not is_asked:
            return statements
        dated = find_dates(text, sentence.day, language)
        name = noun_phrase(dated.undated, language)
        return [_dated(Statement(sentence, language, NOTE, text, name, asked=True), dated)] if name else []


def _clauses(text: str, language: Language) -> Iterator[str]:
    """Yields the parts of a sentence that have their own subject, in order."""
    straight = text.replace("’", "'")
    start = 0
    for gap in language.cue("clause").finditer(straight):
        before = straight[start : gap.start()]
        is_subject = language.cue("joint_subject").fullmatch(before.rpartition(",")[2].strip()) is not None
        if len(words_of(before)) >= _MIN_CLAUSE_WORDS and not is_subject:
            yield straight[start : gap.start()]
            start = gap.end()
    yield straight[start:]


def _read_clause(clause: str, sentence: Sentence, language: Language, asked: bool) -> Statement | None:
    said = language.cue("lead_in").sub("", clause).strip()
    plain = language.cue("lead_in").sub("", language.write_out(clause)).strip()
    corrects, retracts = sentence.has("correction"), sentence.has("retraction")
    doubts = _DOUBTS if not asked else ("small_talk",)
    standing = language.has("standing", plain)
    if any(language.has(cue, plain) for cue in doubts if not (cue == "you" and standing)):
        return None
    dated = find_dates(plain, sentence.day, language)
    statement = Statement(sentence, language, NONE, _capital(said), asked=asked, corrects=corrects, retracts=retracts)
    for rule in language.statements:
        match = rule.pattern.match(dated.behind)
        if match is None or not _has_fitting_date(rule, dated, sentence):
            continue
        name = _name(match, sentence, language)
        # Nothing can be found by `I usually do`, unless the pattern itself says everything (`I live alone`).
        if not asked and _is_pointless(match, name, rule, dated, language):
            continue
        if not (name or rule.single) and (rule.kind != FACT or (match.groupdict().get("object") or "").strip()):
            continue
        what = match.groupdict().get("what") or ""
        shown = find_dates(said, sentence.day, language)
        made = replace(statement, kind=rule.kind, name=name, what=what.lower(), slot=rule.slot, single=rule.single)
        return _dated(made, shown)
    return statement if corrects and not asked else None


def _has_fitting_date(rule: StatementRule, dated: Dated, sentence: Sentence) -> bool:
    if not rule.dated:
        return True
    if not dated.names_date or dated.is_now:
        return False
    return not rule.future or not dated.when or lies_ahead(dated.when, sentence.day)


def _name(match: re.Match[str], sentence: Sentence, language: Language) -> str:
    """Returns the subject of a matched clause: its name, its deed, or the noun phrase of its object."""
    groups = match.groupdict()
    if groups.get("name"):
        return groups["name"].removesuffix("'s")
    deed = (groups.get("deed") or "").strip()
    if deed:
        for name, pattern in language.tables["deeds"].items():
            if pattern.search(deed):
                return name
    about = groups.get("object") or groups.get("subject") or ""
    if not language.has("last", f" {deed}"):
        # A deed may contain the object after its verb: `lost my job`.
        about = f"{deed.partition(' ')[2]} {about}"
    about = find_dates(about, sentence.day, language).undated
    return noun_phrase(about, language) or noun_phrase(groups.get("value") or "", language)


def _is_pointless(match: re.Match[str], name: str, rule: StatementRule, dated: Dated, language: Language) -> bool:
    """Returns whether a clause does not tell a later reader what it is about: `I love watching them`, `I'm reading a
    book`.
    """
    groups = match.groupdict()
    if groups.get("value") or groups.get("name") or (rule.kind == EVENT and dated.when):
        return False
    about = groups.get("object") or ""
    return language.has("deictic", about) or (bool(about) and language.cue("vague").match(name) is not None)


def _dated(statement: Statement, dated: Dated) -> Statement:
    return replace(statement, text=_capital(dated.text), when=dated.when)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
