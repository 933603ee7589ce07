"""Languages of the offline engine: word lists and patterns, read from a YAML file for each language.

A new file in `languages/` adds a language; no code knows one by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Final

import yaml

_MACRO: Final = re.compile(r"(?<!\(\?P)(?<!\(\?P=)<([a-z_]+)>")
_MAX_MACRO_DEPTH: Final = 8
_KINDS: Final = frozenset({"fact", "preference", "thing", "event", "note"})
_EMPTY: Final = "(?!)"


class LanguageError(Exception):
    """A language file is invalid. The message names the file's code, the entry and the reason."""


@dataclass(frozen=True, slots=True)
class StatementRule:
    """A pattern of clauses to keep. `dated`: only with a date; `future`: only with a date ahead. `single`: only one
    such fact holds at a time, so a later one replaces it.
    """

    kind: str
    pattern: re.Pattern[str]
    slot: str = ""
    single: bool = False
    dated: bool = False
    future: bool = False


@dataclass(frozen=True, slots=True)
class DateRule:
    """A pattern of dates. `unit` and `count` supply what its groups lack: that many units from the day of speaking."""

    pattern: re.Pattern[str]
    unit: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class WishRule:
    """A pattern of what a user wants in a turn. `list` names a list of the fingerprint, `value` a form of values."""

    list: str
    severity: str
    value: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class ReactionRule:
    """A pattern of reactions to the previous answer."""

    reaction: str
    confidence: float
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Language:
    """All rules and word lists of one language. A pattern that the file omits never matches."""

    code: str
    function_words: frozenset[str]
    no_topics: frozenset[str]
    written_out: tuple[tuple[re.Pattern[str], str], ...]
    calendar: Mapping[str, Mapping[str, int | str]]
    dates: tuple[DateRule, ...]
    cues: Mapping[str, re.Pattern[str]]
    statements: tuple[StatementRule, ...]
    wishes: tuple[WishRule, ...]
    reactions: tuple[ReactionRule, ...]
    tables: Mapping[str, Mapping[str, re.Pattern[str]]]
    """Patterns of turn memory by table and key: `amounts`, `classes`, `references`, `promotes`, `account` ..."""

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> Language:
        """Reads the content of a language file. Raises LanguageError."""
        code = str(content.get("code", ""))
        if not code or not content.get("function_words"):
            raise LanguageError(f"language {code!r}: `code` and `function_words` are required")
        calendar = {name: _numbered(one) for name, one in content.get("calendar", {}).items()}
        compiler = _Compiler(
            code, {**{name: _any_of(one) for name, one in calendar.items()}, **content.get("macros", {})}
        )
        turn = content.get("turn", {})
        return cls(
            code=code,
            function_words=frozenset(content["function_words"].split()),
            no_topics=frozenset(turn.get("no_topics", "").split()),
            written_out=tuple(
                (compiler.compile("written_out", pattern), text)
                for pattern, text in content.get("written_out", {}).items()
            ),
            calendar=calendar,
            dates=compiler.rules(DateRule, "dates", content.get("dates", ()), r"\b(?:{})(?!\w)"),
            cues={
                name: compiler.compile(name, pattern)
                for part in (content, content.get("cues", {}), turn, content.get("phrase", {}))
                for name, pattern in part.items()
                if isinstance(pattern, str) and name not in ("code", "function_words", "no_topics")
            },
            statements=compiler.rules(StatementRule, "statements", content.get("statements", ())),
            wishes=compiler.rules(WishRule, "wishes", turn.get("wishes", ())),
            reactions=compiler.rules(ReactionRule, "reactions", turn.get("reactions", ())),
            tables={
                name: {key: compiler.compile(f"{name}.{key}", pattern) for key, pattern in table.items()}
                for name, table in (*turn.items(), ("deeds", content.get("deeds", {})))
                if isinstance(table, dict)
            },
        )

    def cue(self, name: str) -> re.Pattern[str]:
        """Returns the pattern of that name, or one that never matches."""
        return self.cues.get(name) or re.compile(_EMPTY)

    def has(self, name: str, text: str) -> bool:
        """Returns whether the pattern of that name occurs in the text."""
        return self.cue(name).search(text) is not None

    def write_out(self, text: str) -> str:
        """Returns the text with straight apostrophes and without contractions, as patterns expect it."""
        return _written_out(text.replace("’", "'"), self.written_out)


@dataclass(frozen=True, slots=True)
class _Compiler:
    code: str
    macros: Mapping[str, str]

    def rules(self, kind: type, name: str, entries: Sequence[Mapping[str, Any]], frame: str = "{}") -> tuple[Any, ...]:
        made = []
        for number, entry in enumerate(entries):
            where = f"{name}[{number}]"
            if entry.get("kind", "fact") not in _KINDS:
                raise LanguageError(f"language {self.code!r}, {where}: no kind {entry['kind']!r}")
            pattern = self.compile(where, frame.replace("{}", str(entry.get("pattern", ""))))
            try:
                made.append(kind(**{**entry, "pattern": pattern}))
            except TypeError as error:
                raise LanguageError(f"language {self.code!r}, {where}: {error}") from error
        return tuple(made)

    def compile(self, where: str, pattern: str) -> re.Pattern[str]:
        text = pattern
        for _ in range(_MAX_MACRO_DEPTH):
            if _MACRO.search(text) is None:
                break
            try:
                text = _MACRO.sub(lambda match: self.macros[match[1]], text)
            except KeyError as error:
                raise LanguageError(f"language {self.code!r}, {where}: no macro {error}") from error
        try:
            return re.compile(text, re.I)
        except re.error as error:
            raise LanguageError(f"language {self.code!r}, {where}: {error}") from error


@lru_cache(maxsize=1024)
def _written_out(text: str, rules: tuple[tuple[re.Pattern[str], str], ...]) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


@cache
def languages() -> tuple[Language, ...]:
    """Returns the languages shipped with the package, in the order of their codes. Raises LanguageError."""
    files = (entry for entry in resources.files(__package__).joinpath("languages").iterdir())
    contents = [yaml.safe_load(entry.read_text(encoding="utf-8")) for entry in files if entry.name.endswith(".yaml")]
    return tuple(sorted(map(Language.parse, contents), key=lambda language: language.code))


def language_of(words: Sequence[str], known: Sequence[Language] | None = None) -> Language | None:
    """Returns the language with the most function words among the words, None if there are none."""
    counts = [
        (sum(word.partition("'")[0] in language.function_words for word in words), language)
        for language in (languages() if known is None else known)
    ]
    best = max(counts, key=lambda pair: pair[0], default=(0, None))
    return best[1] if best[0] else None


def _numbered(entries: Sequence[str] | Mapping[str, int | str]) -> Mapping[str, int | str]:
    """Returns names with their numbers; a list is numbered from 1."""
    return entries if isinstance(entries, dict) else {name: number for number, name in enumerate(entries, 1)}


def _any_of(names: Mapping[str, object]) -> str:
    longest_first = sorted(names, key=lambda name: -len(name))
    return f"(?:{'|'.join(map(re.escape, longest_first))})"
