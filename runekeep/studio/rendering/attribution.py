"""Which message a changed line came from.

The contract names the messages of a change: those that the commit's operations on this memory came from. Of several,
the one that shares most words with the line is taken, if it shares more than any other.
"""

import re
from collections.abc import Iterable, Mapping

from runekeep.v1 import common_pb2

_WORD = re.compile(r"\w{3,}")


def message_of_line(
    line: str, message_ids: Iterable[str], messages: Mapping[str, common_pb2.Message]
) -> common_pb2.Message | None:
    """Returns the message that a line most likely came from; None if that is not clear. `messages`: by id, as far as
    they are known."""
    ids = list(message_ids)
    known = [messages[message_id] for message_id in ids if message_id in messages]
    if len(ids) == len(known) == 1:
        return known[0]
    wanted = _words(line)
    scores = sorted(((len(wanted & _words(_text(message))), message.sequence) for message in known), reverse=True)
    if not scores or not scores[0][0] or (len(scores) > 1 and scores[0][0] == scores[1][0]):
        return None
    return next(message for message in known if message.sequence == scores[0][1])


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def _text(message: common_pb2.Message) -> str:
    return " ".join(part.text.text or part.tool.output[:4000] or part.image.caption for part in message.parts)
