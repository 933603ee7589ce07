"""Finds users who write mostly in a language that their embedder does not know: search finds their texts mostly by
their words, and nothing else says so.

Statistics of letters show the languages of a sample of messages. No text leaves this process.
"""

import asyncio
import os
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from time import monotonic
from typing import Any, Final

from runekeep_server.app import StartError
from runekeep_server.doctor.check import Check, is_readable, ok, skipped, warning
from runekeep_server.doctor.machine import held_off
from runekeep_server.services import embedding_options, store_options
from runekeep_server.settings import Settings
from runekeep_storage.database import Space
from runekeep_storage.drivers.sqlite.file_lock import owner_of
from runekeep_storage.drivers.sqlite.wal_check import check_log
from runekeep_storage.embedders import EmbeddingOptions
from runekeep_storage.embedders.languages import known_languages
from runekeep_storage.errors import StoreError, StoreLost
from runekeep_storage.migrations.migrate import sqlite_schema
from runekeep_storage.store import POSTGRES_SCHEMES, embedded_database
from runekeep_storage.transfer.talk_samples import TalkSamples, postgres_samples, sqlite_samples

NAME = "text.language"
MIN_TEXTS = 5
"""A user with fewer texts that are long enough is not judged."""
MIN_LETTERS = 20
"""Shorter texts have no language that statistics could tell. A letter of another script than the Latin one counts
_OTHER_LETTER times."""
SECONDS = 10.0
"""Time for telling languages; what is left then is not judged."""
MAX_NAMED = 10
"""Users that are reported one by one; of further ones only the number."""
_MAX_CHARACTERS = 400
_OTHER_LETTER = 3
# First code point after the Latin blocks.
_FIRST_OTHER = 0x0250
_MIN_UNKNOWN = 0.7
"""Least probability that a text is in none of the known languages."""
_MIN_LANGUAGE = 0.4
"""Least probability of its likeliest language. Code and lists of names have many unlikely ones."""
_NO_LANGUAGE = "zxx"
_VARIANTS: Final = {"yue": "zh", "wuu": "zh", "ary": "ar", "arz": "ar", "pcm": "en", "nn": "no", "ext": "es"}
"""Languages that count as another one, which short texts cannot tell apart."""
_NO_TALK = re.compile(r"```.*?(```|$)|`[^`]*`|https?://\S+|\S+@\S+", re.DOTALL)
"""Code, addresses and URLs."""
_ENGLISH_NAMES: Final = {
    "ar": "Arabic", "bg": "Bulgarian", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
    "es": "Spanish", "fa": "Persian", "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi", "hu": "Hungarian",
    "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "nl": "Dutch", "no": "Norwegian",
    "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sv": "Swedish", "th": "Thai",
    "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Finding:
    """`share`: of the texts that are long enough, those in languages that the embedder does not know. `language`: code
    of the most frequent one of these."""

    space: Space
    language: str
    share: float
    texts: int


async def languages(settings: Settings) -> AsyncIterator[Check]:
    """Yields nothing if nobody knows the languages of the embedder."""
    known = known_languages(settings.embedder, embedding_options(settings))
    if known is None:
        return
    found = await _read(settings)
    if found is None:
        yield skipped(NAME, "messages of users cannot be read, or not in time; see `store`")
        return
    judged, findings = await asyncio.to_thread(_judge, found, known)
    for one in findings[:MAX_NAMED]:
        yield warning(
            NAME,
            f"account {one.space.account}, user {one.space.user}: {one.share:.0%} of the newest {one.texts} longer"
            f" messages are in languages that `{settings.embedder}` does not know, most of them in"
            f" {_name(one.language)}",
            _advice(one.language, known),
        )
    if len(findings) > MAX_NAMED:
        more = f"the same holds for {len(findings) - MAX_NAMED} more of the {judged} users with enough text to tell"
        yield warning(NAME, more, _advice(findings[MAX_NAMED].language, known))
    if not findings:
        knows = f"`{settings.embedder}` knows {', '.join(sorted(map(_name, known)))}"
        counted = (
            f"{judged} of {len(found.samples)} users that were looked at, of {found.spaces}, have enough text to tell"
        )
        yield ok(NAME, f"{knows}; {counted}, and none writes mostly in another language")


def _advice(language: str, known: frozenset[str]) -> str:
    bilingual = known_languages("bilingual", EmbeddingOptions())
    other = "bilingual" if bilingual is not None and language in bilingual - known else "openai"
    return (
        f"Search finds these messages mostly by their words. Change to an embedder that knows {_name(language)}:"
        f" docs/operate/embedders.md, `runekeep index embed --to {other}`."
    )


def _name(code: str) -> str:
    return _ENGLISH_NAMES.get(code, f"`{code}`")


async def _read(settings: Settings) -> TalkSamples | None:
    """Returns the sample; None if the store cannot be read, which other checks report."""
    if settings.store_url.startswith(POSTGRES_SCHEMES):
        return await _read_postgres(settings.store_url)
    try:
        database = embedded_database(store_options(settings))
    except StartError:
        return None
    if not database.exists():
        return TalkSamples((), 0)
    with held_off(settings.data_dir) as working:
        in_use = working is not None or owner_of(database) is not None
        try:
            if not in_use:
                if not os.access(database, os.W_OK) or not os.access(database.parent, os.W_OK):
                    return None
                await asyncio.to_thread(check_log, database)
                if sqlite_schema(database) is None:
                    return TalkSamples((), 0)
            return await sqlite_samples(database, read_only=in_use)
        except (sqlite3.Error, StoreLost):
            return None


async def _read_postgres(url: str) -> TalkSamples | None:
    import asyncpg

    if not is_readable(url):
        return None
    try:
        return await postgres_samples(url)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, StoreError, OSError, TimeoutError, ValueError):
        return None


def _judge(found: TalkSamples, known: frozenset[str]) -> tuple[int, list[_Finding]]:
    """Returns the number of users with enough text, and the findings, by share."""
    judged, findings = 0, []
    end = 0.0
    for sample in found.samples:
        texts = [text for text in map(_talk, sample.texts) if _letters(text) >= MIN_LETTERS]
        if len(texts) < MIN_TEXTS:
            continue
        if not judged:
            _identifier()
            end = monotonic() + SECONDS
        elif monotonic() > end:
            break
        judged += 1
        unknown = Counter(language for text in texts if (language := _unknown_language(text, known)))
        if 2 * unknown.total() > len(texts):
            language = unknown.most_common(1)[0][0]
            findings.append(_Finding(sample.space, language, unknown.total() / len(texts), len(texts)))
    return judged, sorted(findings, key=lambda one: (-one.share, one.space.account, one.space.user))


def _talk(text: str) -> str:
    return _NO_TALK.sub(" ", text).strip()[:_MAX_CHARACTERS]


def _letters(text: str) -> int:
    return sum(_OTHER_LETTER if ord(character) >= _FIRST_OTHER else 1 for character in text if character.isalpha())


def _unknown_language(text: str, known: frozenset[str]) -> str | None:
    """Returns the likeliest language of a text, if the embedder knows none that the text may be in."""
    likely: defaultdict[str, float] = defaultdict(float)
    for code, probability in _rank(text):
        likely[_VARIANTS.get(code, code)] += probability
    language, most = max(likely.items(), key=itemgetter(1))
    of_unknown = sum(value for code, value in likely.items() if code not in known and code != _NO_LANGUAGE)
    if language in known or language == _NO_LANGUAGE or most < _MIN_LANGUAGE or of_unknown < _MIN_UNKNOWN:
        return None
    return language


def _rank(text: str) -> Sequence[tuple[str, float]]:
    ranked: Sequence[tuple[str, float]] = _identifier().rank(text)
    return ranked


@cache
def _identifier() -> Any:
    # Imported here: it takes 80 MB and a second, and most checks need neither.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
