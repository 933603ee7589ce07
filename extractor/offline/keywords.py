"""Words that carry meaning, and the phrases that a text keeps coming back to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from extractor.offline.sentences import words_of

# Words without a topic of their own: English function words, and the small change of talk.
STOPWORDS: Final = frozenset(
    """
    a about above after again against ago all almost alone along already also although always am among an and another
    any anyone anything anyway are aren't around as ask at away back be became because been before being believe best
    better between big bit both but by came can can't cannot come comes coming could couldn't day days did didn't do
    does doesn't doing don't done down during each either else enough even ever every everyone everything exactly feel
    feeling feels felt few find first for forward found from full fun further gave get gets getting give gives glad go
    goes going gonna good got gotta great guess had hadn't half happened happy hard has hasn't have haven't having he
    he's hear heard hello help her here hers herself hey hi him himself his hope how however i i'd i'll i'm i've if im
    important in indeed instead into is isn't it it's its itself just keep kind kinda knew know known last later least
    less let let's life like likely little long look looking looks lot lots love made make makes making many may maybe
    me mean means might mine more most much must my myself need needed needs never new next nice no none nope not
    nothing now of off often oh ok okay old on once one ones only onto or other others our ours out over own people per
    perhaps pleasure please point pretty probably put quite rather re really right said same saw say says see seem
    seemed seems seen set several shall she she's should shouldn't since so some someone something sometimes soon sorry
    still stuff such super sure take taken takes talk tell than thank thanks that that's the their theirs them
    themselves then there there's these they they're thing things think thinking this those though thought three
    through till time times to today together told tomorrow too took totally toward tried true try trying two under
    until up upon us use used using usually ve very wanna want wanted wants was wasn't way ways we we'll we're we've
    week weeks well went were weren't what what's when where whether which while who whole whom whose why will wish
    with within without won't wonderful work worked works would wouldn't wow yea yeah year years yep yes yesterday yet
    you you'd you'll you're you've your yours yourself awesome amazing cool prefer prefers live lives lived hate
    hates enjoy loves likes bought called meet met signed fails failed moved nope alright actually morning afternoon
    evening night tonight recently user assistant
    """.split()
)


_AT_LEAST: Final = 3
# Names of days and months, and the word for one.
CALENDAR: Final = frozenset(
    """
    monday tuesday wednesday thursday friday saturday sunday month months january february march april may june july
    august september october november december
    """.split()
)


def content_words(text: str) -> list[str]:
    """Its words in lower case, without those that carry no topic."""
    words = (word.lower().replace("’", "'").removesuffix("'s") for word in words_of(text))
    return [word for word in words if word not in STOPWORDS and (len(word) > 2 or not word.isascii())]


def key_phrases(texts: Sequence[str], limit: int) -> list[str]:
    """Words and pairs of words that many of the texts hold, names before others, as they were written first."""
    weights: dict[str, float] = {}
    spelling: dict[str, str] = {}
    for text in texts:
        words = words_of(text)
        here: dict[str, float] = {}
        for size in (1, 2):
            for start in range(len(words) - size + 1):
                phrase = words[start : start + size]
                plain = [word.lower().replace("’", "'").removesuffix("'s") for word in phrase]
                if any(
                    word in STOPWORDS or word in CALENDAR or (len(word) < 3 and word.isascii()) or word.isdigit()
                    for word in plain
                ):
                    continue
                key = " ".join(plain)
                spelling.setdefault(key, re.sub(r"['’]s$", "", " ".join(phrase)))
                # A pair says more than either word, and a capital within a sentence makes a name.
                here[key] = 1.0 + 0.3 * (size - 1) + 0.3 * (start > 0 and phrase[0][:1].isupper())
        for key, weight in here.items():
            weights[key] = weights.get(key, 0.0) + weight
    chosen: list[str] = []
    # The sort is stable: of equals the one said first comes first.
    for key in sorted(weights, key=lambda key: -weights[key]):
        # A word that was said once tells little: it fills up a list that would be too short.
        if len(chosen) == (limit if weights[key] > 1.0 else min(_AT_LEAST, limit)):
            break
        if not any(_covers(key, other) for other in chosen):
            chosen.append(key)
    return [spelling[key] for key in chosen]


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """A word's stem, so that `hiking` and `hikes`, or `class` and `classes`, are one topic."""
    for ending in ("ingly", "edly", "ings", "ing", "ies", "ied", "ed", "es", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not (ending == "s" and word.endswith("ss")):
            return word[: -len(ending)]
    return word


def _covers(key: str, other: str) -> bool:
    return bool({stem(word) for word in key.split()} & {stem(word) for word in other.split()})
