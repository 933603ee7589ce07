"""What a sentence of the user says that the agent should do, should not do, or should know."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from extractor.offline.turns.amounts import Amount, amounts_in, number_of
from extractor.offline.turns.denied import DENIAL
from extractor.offline.turns.keys import (
    BUDGET,
    DURATION,
    LENGTH,
    PEOPLE,
    classed,
    first_of,
    head_of,
    key_of,
    singular,
)
from extractor.offline.turns.phrases import PHRASE_LENGTH, RULE_LENGTH, clauses_of, phrase_of, quoted, taken_from
from extractor.offline.turns.wishes import (
    ALLOWANCES,
    CALLED,
    CONDITION,
    CONDITIONAL,
    DENIALS,
    FAVOURITE,
    INSTEAD,
    LIKED,
    LIKED_BEHIND,
    MODAL,
    MUST,
    NO_DENIAL,
    OF_OUTPUT,
    ONLY,
    PLAIN_VERB,
    POINTING,
    SOFT,
    TIME,
    TO_DO,
    USED,
    WANTED,
    label_behind,
    label_of,
    scope_of,
)
from extractor.offline.turns.world import complains, is_general, is_lead_in
from schemas.turns.checks import KEY_LENGTH
from schemas.turns.fingerprint import MOST_SIGNALS, Signal

ASSERTIONS: Final = "assertions"
EXCEPTIONS: Final = "exceptions"
FACTS: Final = "facts"
_ACTING_EXACT: Final = frozenset({BUDGET, LENGTH, DURATION, PEOPLE})
_CORRECTS: Final = re.compile(
    r"\b(?:actually|wait|sorry|correction|make (?:it|that)|i meant|scratch that|rather)\b", re.I
)
_BARE_NUMBER: Final = re.compile(
    r"\b(?:make (?:it|that)|i meant|rather|actually|correction|wait|sorry)[:,]?\s+(?P<number>\d+(?:[.,]\d+)?k?)\b"
    r"(?! ?[%€$£]|[.,:/-]?\d)",
    re.I,
)
_DOTTED: Final = re.compile(r"\b[ap]\.m\.$", re.I)
_BY: Final = re.compile(r"^by (?:the (?!end))?", re.I)
_SOFT_IN_FRONT: Final = re.compile(
    r"^(?:and |but |please )?(?:if possible|if you can|where possible|ideally|preferably)\b", re.I
)
# In a plain statement these tell what was or is.
_STATED: Final = ("instead of", "rather than", "other than", "except", "without", "with no", "no ", "not ")
_NUMBER_ALONE: Final = re.compile(
    r"^(?:[$€£]? ?\d[\d.,]*k?(?: [\w-]+)?|one|two|three|four|five|six|seven|eight|nine|ten|more|less|fewer)$", re.I
)
_MAY: Final = frozenset({"can", "may", "could"})
_ALWAYS: Final = re.compile(r"^(?:from now on,? )?always\b", re.I)
_DEFINITE: Final = re.compile(r"\b(?:the|these|those|my|our) $", re.I)
_PREFERRED_TO: Final = re.compile(r"\s(?:over|rather than|instead of|more than|than)\s", re.I)
_TAKING: Final = re.compile(
    r"^(?:take|have|use|get|go by|go with|travel by|eat|drink|book|buy|choose|pick) (?=\w)", re.I
)
_NEITHER: Final = re.compile(r"\b(?:neither|nor)\b", re.I)
# What it takes the place of must be asked for, or liked.
_WISHING: Final = re.compile(
    r"\b(?:want|wish|would|'d|like|prefer|need|must|should|could|rather|please|fine|ok|okay|use|make|give|take)\b|"
    r"^(?!(?:it|he|she|they|that|this)\b)[a-z]+ (?:me|us)\b",
    re.I,
)
_BARE_DENIAL: Final = re.compile(r"(?:\b(?:never|avoid|stop|(?:do|does|must|should|can|may|could) not)|n't)$", re.I)
_MY_BUDGET: Final = re.compile(
    r"\b(?:budget|limit|(?:can|could|want to|wish to|willing to|like to|able to|to) (?:spend|pay)|afford)\b", re.I
)


@dataclass(slots=True)
class Signals:
    """The signals of one turn. What is said again of the same thing takes the place of what was said before when it is
    worded as a correction; else each is kept once."""

    assertions: list[Signal] = field(default_factory=list)
    exceptions: list[Signal] = field(default_factory=list)
    facts: list[Signal] = field(default_factory=list)

    def add(self, name: str, signal: Signal, *, corrects: bool = False) -> None:
        """Put it into the list of that name. One without a key is left out."""
        if not signal.key:
            return
        signal = replace(signal, key=signal.key[:KEY_LENGTH])
        there: list[Signal] = getattr(self, name)
        if corrects:
            there[:] = [one for one in there if not _same_thing(one, signal)]
        if len(there) < MOST_SIGNALS and not any(
            _same_thing(one, signal) and one.value == signal.value for one in there
        ):
            there.append(signal)

    def correct_number(self, number: int | float) -> None:
        """Put a number that was said alone in place of the last one; without one nothing."""
        for place in range(len(self.assertions) - 1, -1, -1):
            value = self.assertions[place].value
            if isinstance(value, int | float) and not isinstance(value, bool):
                self.assertions[place] = replace(self.assertions[place], value=number)
                return
            if isinstance(value, dict) and len(value) == 1 and ("max" in value or "min" in value):
                self.assertions[place] = replace(self.assertions[place], value=dict.fromkeys(value, number))
                return


def read_wishes(text: str, signals: Signals, *, acting: bool, objective: bool) -> list[str]:
    """Read what a sentence wants and excludes. `acting`: it asks, orders or wishes; `objective`: it is the turn's main
    request, which is no wish besides. Gives back the clauses, or what of them was not read.
    """
    if is_general(text):
        return []
    reader = _Reader(
        signals,
        scope=scope_of(text),
        conditional=quoted(text, RULE_LENGTH) if CONDITIONAL.search(text) else "",
        acting=acting or _obliges(text),
        objective=objective,
        bound_to=label_of(text),
        wishing=_WISHING.search(text) is not None,
        soft=_SOFT_IN_FRONT.match(text) is not None,
        corrects=_CORRECTS.search(text) is not None,
    )
    left: list[str] = []
    reader.pending = list(clauses_of(text))
    while reader.pending:
        clause = reader.pending.pop(0)
        if _BARE_DENIAL.search(clause):
            # What it denies stands in the clauses behind it.
            break
        if rest := reader.clause(clause):
            left.append(rest)
        # Behind its first clause the main request says how, not what.
        reader.objective = reader.first = False
    bare = _BARE_NUMBER.search(text)
    if bare is not None and not any(one.start <= bare.start("number") < one.end for one in amounts_in(text)):
        signals.correct_number(number_of(bare["number"]))
    return left


@dataclass(slots=True)
class _Reader:
    """Reads the clauses of one sentence, each rule on what the rules before it have left."""

    signals: Signals
    scope: str
    conditional: str
    """The sentence, where what it wants holds in a case that it names: then all of it is the rule."""
    acting: bool
    objective: bool
    corrects: bool
    first: bool = True
    """It is the sentence's first clause that is read."""
    wishing: bool = False
    """A word of it wishes for something."""
    soft: bool = False
    """It begins with `if possible` or the like, which holds for all of it."""
    bound_to: str = ""
    """What the sentence, or the clause that is read, says that it is for."""
    last_key: str = ""
    """Of what was put last: what stands instead of it is of the same key."""
    pending: list[str] = field(default_factory=list)
    """Clauses that are still to be read."""

    def clause(self, clause: str) -> str:
        """What of it no rule took."""
        if complains(clause):
            return ""
        self.bound_to = label_behind(clause) or self.bound_to
        text = clause
        for rule in (self._times, self._excluded, self._allowed):
            text = rule(text)
            if not text:
                return ""
        left = self._amounts(text)
        rest = self._forms(left)
        counted = left != text or (self.acting and TIME.search(clause) is not None)
        return self._wanted(rest, counted=counted) if rest else ""

    def _is_soft(self, text: str) -> bool:
        return self.soft or SOFT.search(text) is not None

    def _things(self, text: str) -> list[str]:
        """The things named at its beginning; what stands behind them is read after this clause."""
        things, behind = taken_from(text)
        if behind:
            self.pending.insert(0, behind)
        return things

    def _thing(self, text: str) -> str:
        """What is named at its beginning, as one; empty without."""
        return " or ".join(self._things(text))

    def _put(self, name: str, key: str, value: Any, severity: str, *, of: str = "") -> None:
        # Where a rule names what it is about, that is the nearer one.
        value = {"rule": self.conditional} if self.conditional else value
        signal = Signal(key, value, severity, self.scope, (of or self.bound_to)[:KEY_LENGTH])
        self.last_key = key or self.last_key
        self.signals.add(name, signal, corrects=self.corrects)

    def _exclude(self, things: Sequence[str], severity: str, *, instead: bool) -> None:
        if any(map(_NUMBER_ALONE.match, things)):
            # A number that is not meant says nothing of the others.
            return
        known = [classed(thing) for thing in things]
        # Of a list the one that has a name of its own says what all of them are.
        key = next((one[0] for one in known if one), "") or (self.last_key if instead else "")
        key = key or next(filter(None, map(key_of, things)), self.last_key)
        values = [one[1] if one else thing for one, thing in zip(known, things, strict=True)]
        if values:
            self._put(EXCEPTIONS, key, {"exclude": values}, severity)

    def _excluded(self, clause: str) -> str:
        if NO_DENIAL.search(clause):
            return clause
        for pattern, severity in DENIALS:
            match = pattern.search(clause)
            if match is None:
                continue
            # A bound with a denial in it is a bound: `no more than 200 words`.
            if any(
                amount.bound and (amount.turned or amount.start <= match.start("rest")) for amount in amounts_in(clause)
            ):
                continue
            if match[0].lower().startswith(_STATED) and not (self.acting or self.wishing):
                return ""
            if len(DENIAL.findall(clause[: match.start("rest")])) > 1:
                # `Don't avoid it`: of two denials one takes back the other.
                return ""
            self._deny(match, "avoid" if self._is_soft(clause) else severity)
            return clause[: match.start()].strip()
        return "" if _NEITHER.search(clause) else clause

    def _deny(self, match: re.Match[str], severity: str) -> None:
        rest, verb = match["rest"], match.groupdict().get("verb") or ""
        if not verb or (PLAIN_VERB.match(verb) and CONDITION.match(rest) is None):
            instead = INSTEAD.match(match[0]) is not None
            things = self._things(rest)
            # Behind `red and` may stand what is wanted besides.
            self._exclude(things[:1] if instead and " and " in rest else things, severity, instead=instead)
            return
        # The deed says more than its object.
        phrase = phrase_of(rest) or rest.rstrip(".! ")
        said = f"{match[0][: match.start('rest') - match.start()].strip()} {phrase}".strip()
        key = (key_of(phrase) if CONDITION.match(rest) is None else "") or verb.lower()
        self._put(EXCEPTIONS, key, {"rule": quoted(said, PHRASE_LENGTH)}, severity)

    def _allowed(self, text: str) -> str:
        for pattern in ALLOWANCES:
            match = pattern.search(text)
            if match is None or DENIAL.search(text[: match.start("rest")].replace("don't mind", "")):
                continue
            things = [thing for thing in self._things(match["rest"]) if not POINTING.match(thing)]
            amounts = amounts_in(match["rest"])
            if amounts:
                self._put(ASSERTIONS, amounts[0].key, amounts[0].value, "allow", of=amounts[0].applies_to)
                return ""
            if len(things) > 1:
                self._put(ASSERTIONS, _common_key(things), {"options": things}, "allow")
            elif things:
                self._put(ASSERTIONS, key_of(things[0]), things[0], "allow")
            return ""
        return text

    def _times(self, text: str) -> str:
        if not self.acting:
            return text
        for match in TIME.finditer(text):
            said = " ".join(match[0].split())
            said = said if _DOTTED.search(said) else said.rstrip(".")
            severity = "prefer" if self._is_soft(text) else "must"
            self._put(ASSERTIONS, match.lastgroup or "", _BY.sub("", said), severity)
        return " ".join(TIME.sub(" ", text).split())

    def _amounts(self, text: str) -> str:
        left = text
        for amount in reversed(amounts_in(text)):
            if self._is_wish(amount, text):
                value = self._bounded(amount)
                hard = isinstance(value, dict) or MUST.search(text) is not None
                severity = "must" if hard and not amount.about and not self._is_soft(text) else "prefer"
                self._put(ASSERTIONS, amount.key, value, severity, of=amount.applies_to or _subject_of(text))
                left = f"{left[: amount.start].rstrip()} {left[amount.end :].lstrip()}".strip()
        return left

    def _is_wish(self, amount: Amount, text: str) -> bool:
        """Whether it bounds what the agent does; in a plain statement a number tells of the world."""
        case = CONDITIONAL.search(text[: amount.start])
        if case is not None and "," not in text[case.end() : amount.start]:
            # It says when, not what.
            return False
        if amount.turned:
            return True
        if amount.key == BUDGET and isinstance(amount.value, dict):
            return self.acting or ("max" in amount.value and _MY_BUDGET.search(text) is not None)
        if not isinstance(amount.value, dict) and _DEFINITE.search(text[: amount.start]):
            return False
        if not self.acting:
            return self.corrects and self._before(amount) is not None
        return amount.bound or amount.key in _ACTING_EXACT

    def _before(self, amount: Amount) -> Signal | None:
        return next((one for one in self.signals.assertions if one.key == amount.key), None)

    def _bounded(self, amount: Amount) -> Any:
        """Its value, as the bound that it corrects."""
        before = self._before(amount) if self.corrects else None
        if before is None or amount.bound or not isinstance(before.value, dict) or len(before.value) != 1:
            return amount.value
        return dict.fromkeys(before.value, amount.value)

    def _forms(self, text: str) -> str:
        """`Answer in German`, `as a table`, `keep it short`: how what the agent gives should be."""
        if not self.acting or DENIAL.search(text):
            return text
        severity = (
            "must" if (MUST.search(text) or self.scope == "conversation") and not self._is_soft(text) else "prefer"
        )
        found = [known for rule in OF_OUTPUT for match in rule.finditer(text) if (known := classed(match["form"]))]
        for key, value in found:
            self._put(ASSERTIONS, key, value, severity)
        return "" if found else text

    def _wanted(self, text: str, *, counted: bool) -> str:
        """`counted`: an amount was taken out of it, which a modal before it spoke of."""
        modal = MODAL.search(text) if not counted else None
        if modal is not None and (self.acting or self._leads(modal, text)):
            return self._modal(modal, text)
        match = ONLY.search(text) if self.acting else None
        if match is not None and (phrase := self._thing(match["rest"])):
            self._state(phrase, "must")
            return ""
        called, favourite = CALLED.match(text), FAVOURITE.search(text)
        if called is not None:
            self._put(ASSERTIONS, "name", called["rest"], "must")
            return ""
        if favourite is not None and (phrase := self._thing(favourite["rest"])):
            self._put(ASSERTIONS, singular(favourite["of"]), phrase, "prefer")
            return ""
        liked = LIKED.search(text) or LIKED_BEHIND.search(text)
        if liked is None and not self.objective:
            liked = WANTED.search(text)
        if liked is not None and DENIAL.search(text[: liked.start("rest")]):
            return ""
        if liked is not None:
            phrases = self._things(_TAKING.sub("", _PREFERRED_TO.split(liked["rest"], maxsplit=1)[0]))
            severity = "must" if MUST.search(text) else "prefer"
            if _ALWAYS.match(liked[0]) and phrases:
                self._put(
                    ASSERTIONS, _common_key(phrases), {"rule": quoted(liked[0], RULE_LENGTH).rstrip(".!")}, "must"
                )
                return ""
            for phrase in phrases:
                if not POINTING.match(phrase):
                    self._state(phrase, severity)
            return ""
        must = TO_DO.search(text)
        if must is not None and (rule := phrase_of(must["rest"])):
            # Behind `to` stands a deed with its object, else a subject with its deed.
            key = (
                head_of(rule)
                if must.group(0)[: must.start("rest") - must.start()].rstrip().endswith("to")
                else first_of(rule)
            )
            self._put(ASSERTIONS, key, {"rule": rule}, "must")
            return ""
        used = USED.search(text) if self.acting and not self.objective else None
        if used is not None and (phrase := phrase_of(used["rest"])):
            self._state(phrase, "must" if MUST.search(text) else "prefer")
            return ""
        return text

    def _leads(self, modal: re.Match[str], text: str) -> bool:
        """Whether it begins its clause; behind another clause `it` may be of the world that this tells of."""
        return is_lead_in(text[: modal.start()]) and (self.first or not POINTING.match(modal["subject"]))

    def _modal(self, match: re.Match[str], text: str) -> str:
        subject, force, rest = match["subject"].lower(), match["force"].lower(), match["rest"]
        severity = "allow" if force in _MAY else "prefer" if force.startswith("should") else "must"
        if self._is_soft(text) and severity == "must":
            severity = "prefer"
        being = rest.lower().startswith("be ")
        if subject == "you":
            phrase = phrase_of(rest)
            if not phrase or being or force == "could":
                return text
            self._put(ASSERTIONS, key_of(phrase), {"rule": phrase}, severity)
            return ""
        things = self._things(rest)
        # What something can do is a fact of it, unless there is a choice.
        if not things or (severity == "allow" and len(things) == 1):
            return text
        label = _subject_of(text)
        known = classed(things[0])
        key = known[0] if known else label if being and label else _common_key(things)
        value: Any = (known[1] if known else things[0]) if len(things) == 1 else {"options": things}
        self._put(ASSERTIONS, key, value, severity, of="" if key == label else label)
        return ""

    def _state(self, phrase: str, severity: str) -> None:
        known = classed(phrase)
        key, value = known if known is not None else (key_of(phrase), phrase)
        self._put(ASSERTIONS, key, value, severity)


def _obliges(text: str) -> bool:
    """Whether it says what something must or should be, from its beginning: behind a statement the subject may be of
    the world that it tells of.
    """
    modal = MODAL.search(text)
    return modal is not None and modal["force"].lower() not in _MAY and is_lead_in(text[: modal.start()])


def _subject_of(text: str) -> str:
    """The noun of which it says what it must, should or can be; empty for a pronoun."""
    modal = MODAL.search(text)
    if modal is None or POINTING.match(modal["subject"]) or modal["subject"].lower() == "you":
        return ""
    return head_of(modal["subject"])


def _common_key(things: Sequence[str]) -> str:
    return "_".join(dict.fromkeys(filter(None, map(key_of, things))))


def _same_thing(one: Signal, other: Signal) -> bool:
    return (one.key, one.scope, one.applies_to) == (other.key, other.scope, other.applies_to)
