"""BM25 term weights as sparse vectors, for lexical search.

A text is split into terms, a term becomes an unsigned 32-bit number, and the number carries the term-frequency half of
BM25. The index adds the other half, the inverse document frequency, because it knows how many passages of the tenant
hold a term.
"""

import re
import struct
import threading
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

# k1 and b are the usual BM25 constants. The assumed document length is a constant too: the true average would change
# with every insertion, and on conversation turns 256 found more evidence.
_K1 = 1.2
_B = 0.75
_ASSUMED_LENGTH = 256

# Scripts written without spaces between words, and Hangul, whose words carry their particles: single characters and
# pairs of neighbours replace words.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1100, 0x11FF),  # Hangul Jamo
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # ideographic iteration mark and zero
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3100, 0x318F),  # Bopomofo, Hangul compatibility
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x9FFF),  # Han
    (0xA960, 0xA97F),  # Hangul Jamo extended
    (0xAC00, 0xD7FF),  # Hangul syllables
    (0xF900, 0xFAFF),  # Han compatibility
    (0x20000, 0x3FFFF),  # Han extensions
)

_SEPARATOR, _WORD, _CHARACTER = 0, 1, 2

MAX_TERMS = 64
"""Maximum number of terms of a query; the first ones count. The cost of a search grows with its terms, a dense vector
too covers only the beginning of a text, and the rarity of a term is unknown before it is searched. In a script without
spaces this is some 32 characters."""

# English function words, and the letters that an apostrophe cuts off (it's, don't, we'll).
_STOPWORD_TEXT = """
a an the this that these those
i me my mine myself we us our ours ourselves you your yours yourself yourselves
he him his himself she her hers herself it its itself they them their theirs themselves
who whom whose which what where when why how
am is are was were be been being do does did doing done have has had having
will would shall should can could may might must
and or but nor if then else so than as of at by for with about against between into through
during before after above below to from up down in out on off over under again further
once here there all any both each few more most other some such only own same too very
not no just because while until
s t d m ll re ve don didn doesn isn aren wasn weren hasn haven hadn won wouldn couldn shouldn
"""
_STOPWORDS = frozenset(_STOPWORD_TEXT.split())
_ASCII_WORDS = re.compile("[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Term weights: `indices` are distinct unsigned 32-bit term numbers in ascending order, `values` their weights,
    which fit a 32-bit float exactly. Empty if the text holds no term."""

    indices: tuple[int, ...]
    values: tuple[float, ...]

    def to_bytes(self) -> bytes:
        """Returns eight bytes for each term: all indices as little-endian uint32, then all values as little-endian
        float32."""
        count = len(self.indices)
        return struct.pack(f"<{count}I{count}f", *self.indices, *self.values)

    @classmethod
    def from_bytes(cls, data: bytes) -> "SparseVector":
        """Inverse of `to_bytes`. Raises ValueError if the length is not a multiple of eight."""
        count, rest = divmod(len(data), 8)
        if rest:
            raise ValueError(f"a sparse vector takes 8 bytes a term, got {len(data)} bytes")
        numbers = struct.unpack(f"<{count}I{count}f", data)
        return cls(indices=tuple(numbers[:count]), values=tuple(numbers[count:]))


def encode_document(text: str) -> SparseVector:
    """Returns the term weights of a text to be indexed: BM25 without its IDF factor."""
    counts = Counter(_term_numbers(text))
    norm = _K1 * (1 - _B + _B * counts.total() / _ASSUMED_LENGTH)
    return _vector({number: tf * (_K1 + 1) / (tf + norm) for number, tf in counts.items()})


def encode_query(text: str) -> SparseVector:
    """Returns the term weights of a query: each distinct term counts once, however often it occurs, and only the first
    MAX_TERMS count."""
    found: dict[int, float] = {}
    for number in _term_numbers(text):
        found[number] = 1.0
        if len(found) == MAX_TERMS:
            break
    return _vector(found)


def terms(text: str) -> frozenset[int]:
    """Returns the numbers of the terms of a text."""
    return frozenset(_term_numbers(text))


def _vector(weights: dict[int, float]) -> SparseVector:
    indices = tuple(sorted(weights))
    # Rounded to 32 bits, so that a vector read from a row equals the original.
    form = f"<{len(indices)}f"
    values = struct.unpack(form, struct.pack(form, *(weights[index] for index in indices)))
    return SparseVector(indices=indices, values=values)


def _term_numbers(text: str) -> Iterator[int]:
    if text.isascii():
        # The same words, in a tenth of the time.
        numbers = map(_word_number, _ASCII_WORDS.findall(text.lower()))
        yield from (number for number in numbers if number is not None)
        return
    for kind, run in _runs(unicodedata.normalize("NFKC", text).lower()):
        if kind == _WORD:
            number = _word_number(run)
            if number is not None:
                yield number
        else:
            yield _number(run[0])
            # Interleaved, so that the first MAX_TERMS of a long run include pairs.
            for first, second in pairwise(run):
                yield _number(second)
                yield _number(first + second)


def _runs(text: str) -> Iterator[tuple[int, str]]:
    """Yields the words of a text, and the runs of a script without spaces; all other characters separate them."""
    start, current = 0, _SEPARATOR
    for position, character in enumerate(text):
        kind = _kind(character)
        if kind != current:
            if current != _SEPARATOR:
                yield current, text[start:position]
            start, current = position, kind
    if current != _SEPARATOR:
        yield current, text[start:]


@lru_cache(maxsize=8192)
def _kind(character: str) -> int:
    # Marks belong to the word: without them, vowel signs would split Indic and Thai words.
    if unicodedata.category(character)[0] not in "LNM":
        return _SEPARATOR
    code = ord(character)
    return _CHARACTER if any(first <= code <= last for first, last in _UNSPACED) else _WORD


@lru_cache(maxsize=65536)
def _word_number(word: str) -> int | None:
    """Returns the number of a word's stem, None for a stopword."""
    if word in _STOPWORDS:
        return None
    is_latin = word[0].isalpha() and ord(word[0]) < 0x0250
    return _number(_stem(word) if is_latin else word)


def _number(term: str) -> int:
    # CRC-32 is the same in every process and on every machine; Python's hash() is salted per process.
    return zlib.crc32(term.encode("utf-8"))


_stemmer_lock = threading.Lock()


@lru_cache(maxsize=1)
def _english() -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer("english")


def _stem(word: str) -> str:
    # A stemmer keeps the current word in its own state, so two threads must not use it at once.
    with _stemmer_lock:
        return str(_english().stemWord(word))
