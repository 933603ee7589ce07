"""Words of trouble and of remedies, and the place in a sentence where the one ends and the other begins."""

import re
from typing import Final

from extractor.offline.cues import PROBLEM, SOLUTION
from extractor.offline.sentences import words_of

# Any trouble: wider than PROBLEM, for sentences that tell the remedy too.
TROUBLE: Final = re.compile(
    PROBLEM.pattern
    + r"|\b(?:wouldn't|would not|wasn't|weren't|couldn't|kept \w+ing|keeps \w+ing|always \w+ed|slow|flaky|"
    r"squeak\w*|stain\w*|blight|mould|mold|rust\w*|overheat\w*|over-heated|flat|bounc\w+|missing|wrong|4\d\d|5\d\d|"
    r"ran out|out of|never \w+|"
    r"too \w+|nois\w+|jammed|lost|blurry|loop\w*|duplicat\w+|drain\w*|dropp\w+|corrupt\w*|locked|blocked|rattl\w+|"
    r"smell\w*|froze|freezes|freezing|lag\w*|flicker\w*|warning|invalid|mismatch|race condition|deadlock|wilt\w*|"
    r"pain|ache\w*|hurt|"
    r"insomnia|pests?|aphids|slugs|damp|cracked|clogged|spam|empty|stopped|dead)\b",
    re.I,
)
REMEDY: Final = re.compile(
    SOLUTION.pattern + r"|\b(?:(?:fixed|solved|resolved|cured|sorted|stopped|repaired|cleared|eliminated|mended) "
    r"(?:it|this|that|them|the|my|our|everything)|"
    r"(?:it|this|that|which|\w+ing [^.;,]+) (?:did it|did the trick|helped|cured|fixed|solved|stopped|sorted)|"
    r"did the trick|did it\b|got rid of|"
    r"(?:is|are|was|were) gone|went away|never came back|no more \w+|"
    r"(?:now|and|since then|ever since|after that)[^.;]{0,40}\b(?:works?|shows? up|runs?|rises?|passes|connects?|"
    r"starts?|loads?|is fine|are fine|is gone|goes? through|"
    r"worked|been (?:fine|flat|stable|quiet|fast|green))|(?:has|have|it's|it has) (?:been|worked) (?:fine|flat|"
    r"stable|quiet|fast|green|perfectly)|"
    r"until (?:i|we) \w+|the (?:reason|culprit|cause|fix|answer|trick|cure|remedy) (?:was|is|turned|[^.]{0,60} was)|"
    r"was caused by|came from|"
    r"helped\b|fixed by|solved by|fixed with|solved with)",
    re.I,
)
_IN_VAIN = re.compile(
    r"\b(?:(?:didn't|did not|doesn't|hasn't|nothing|never) (?:really )?(?:help|work|fix|solve|change)\w*|no luck|"
    r"to no avail|"
    r"(?:still|keeps?) (?:fail|crash|break|hang|happen|gett?)\w*|but (?:it|that) (?:still|didn't)|for now|"
    r"tried everything|if (?:i|we|you))\b",
    re.I,
)
_FIXED = re.compile(
    r"^(?:(?:i|we) )?(?:have |finally |just )*(?:fixed|solved|resolved|cured|repaired|got rid of|"
    r"sorted(?: out)?)\b",
    re.I,
)
# Where a sentence turns from the trouble to the remedy.
_TURN = re.compile(
    r"\s*[;:–—]\s+|,\s+(?:so|but|and|then|until|now)\s+|,\s+(?=(?:i|we|a|an|the|\w+ing)\b)|\s+(?=until (?:i|we)\b)|"
    r"\s+(?=by \w+ing\b)|"
    r"\s+(?=because\b)|\s+(?=after (?:i|we|\w+ing)\b)|,\s+|\s+(?:was|is)\s+",
    re.I,
)
_LEAST: Final = 7


def solved_at_once(text: str) -> bool:
    """Whether one sentence tells a trouble and what ended it."""
    if len(words_of(text)) < _LEAST or _IN_VAIN.search(text):
        return False
    if _FIXED.search(text):
        return _TURN.search(text) is not None
    remedy = REMEDY.search(text)
    if remedy is None or TROUBLE.search(text) is None:
        return False
    return _TURN.search(text) is not None


def parts_of(text: str) -> tuple[str, str]:
    """The trouble and the remedy of such a sentence, word for word."""
    turns = [match for match in _TURN.finditer(text) if len(words_of(text[: match.start()])) >= 2]
    for turn in turns:
        head, tail = text[: turn.start()], text[turn.end() :]
        if len(words_of(tail)) >= 2 and (TROUBLE.search(head) or _FIXED.search(head)):
            return head, tail[:1].upper() + tail[1:]
    return text, text
