"""A short topic for a preference: the words of the sentence that say what is liked."""

import re
from typing import Final

from extractor.offline.keywords import content_words
from extractor.offline.sentences import words_of

_WORDS: Final = 5
_OBJECT = re.compile(
    r"\b(?:prefer(?:s|red)?|love|like|enjoy|hate|dislike|adore|loathe|can(?:'|’|no)t stand|fan of|fond of|into|"
    r"would rather|'d rather|(?:always |never )?want|always|never|usually|passionate about)\s+(?P<object>.+)",
    re.I,
)
_FAVORITE = re.compile(r"\bfavou?rite\s+(?P<object>.+?)\s+(?:is|are|was|were)\b", re.I)
_END = re.compile(r"[,.;:!?()\"“”–—]|\s-\s|\b(?:because|since|when|while|but|so|although|and (?:i|we|it|they))\b", re.I)
_LEADING = re.compile(r"^(?:(?:to|the|a|an|my|our|that|it|how|when|some|any|all|just|really|doing|having)\s+)+", re.I)
# Whatever a file name might stumble over, or a heading.
_UNFIT = re.compile(r"[^\w\s'’+#&-]")


def topic_of(text: str) -> str:
    """Two to five words of the sentence; empty when it names nothing."""
    match = _FAVORITE.search(text) or _OBJECT.search(text)
    if match is not None:
        phrase = _LEADING.sub("", _END.split(match["object"], maxsplit=1)[0].strip())
        words = _UNFIT.sub(" ", phrase).split()[:_WORDS]
        while words and not content_words(words[-1]):
            words.pop()
        if content_words(" ".join(words)):
            return _titled(" ".join(words))
    return _titled(_UNFIT.sub("", " ".join(_first_run(words_of(text))[:3])))


def _first_run(words: list[str]) -> list[str]:
    """The first words of content that stand together."""
    run: list[str] = []
    for word in words:
        if content_words(word):
            run.append(re.sub(r"['’]s$", "", word))
        elif run:
            break
    return run


def _titled(topic: str) -> str:
    topic = " ".join(topic.split())[:60].rstrip()
    return topic[:1].upper() + topic[1:]
