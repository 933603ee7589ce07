"""What images show, in words of a model that looked at them, so that none has to look again.

A description belongs to the session whose extraction made it and goes with that session; it holds for the same image,
known by its URL, in every session of the user. Stored messages are never changed by it: a caption is laid over when a
message is read, when a job gets its input and when passages are made.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from storage import sessions
from storage.byte_limits import count_within
from storage.database import Space, Tx
from storage.records import Message

_DIGESTS = 16
_LOOK_UP = (
    "SELECT digest, description FROM image_descriptions WHERE account = $1 AND user_id = $2"
    f" AND digest IN ({', '.join(f'${number}' for number in range(3, 3 + _DIGESTS))}) ORDER BY created_at"
)


@dataclass(frozen=True, slots=True)
class Described:
    """An image by its URL, and what it shows."""

    url: str
    text: str


def digest_of_url(url: str) -> str:
    """An image given as data has a URL of up to a megabyte."""
    return hashlib.sha256(url.encode()).hexdigest()


async def keep(tx: Tx, space: Space, session_id: str, described: Sequence[Described]) -> None:
    """Keeps descriptions with a session; a newer one of an image takes the place of the older."""
    for one in described:
        await tx.execute(
            "INSERT INTO image_descriptions (account, user_id, session_id, digest, description, created_at)"
            " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (account, user_id, session_id, digest)"
            " DO UPDATE SET description = excluded.description, created_at = excluded.created_at",
            space.account,
            space.user,
            session_id,
            digest_of_url(one.url),
            one.text,
            tx.now(),
        )


async def captioned(tx: Tx, space: Space, messages: Sequence[Message]) -> list[Message]:
    """The messages, images without a caption captioned by the newest description that the user has of them."""
    urls = uncaptioned(messages)
    if not urls:
        return list(messages)
    found = await _known(tx, space, urls)
    return [with_captions(message, found) for message in messages]


async def messages_page(
    tx: Tx, space: Space, session_id: str, first: int, last: int, limit: int, most_bytes: int
) -> tuple[list[Message], bool, bool]:
    """As `sessions.messages_page`, images with the captions that are known, of which a page holds about `most_bytes`
    too. Returns besides whether any were added."""
    found, more = await sessions.messages_page(tx, space, session_id, first, last, limit, most_bytes)
    shown = await captioned(tx, space, found)
    added = [0 if new is old else _caption_bytes(new) for new, old in zip(shown, found, strict=True)]
    count = count_within(added, most_bytes)
    return shown[:count], more or count < len(shown), any(added)


def _caption_bytes(message: Message) -> int:
    return sum(len(part.get("caption", "").encode()) for part in message.parts)


def uncaptioned(messages: Sequence[Message]) -> list[str]:
    """Returns the URLs of the images without a caption, each once."""
    return list(dict.fromkeys(part["url"] for message in messages for part in message.parts if _lacks_caption(part)))


async def is_any_described(tx: Tx, space: Space, digests: Sequence[str]) -> bool:
    """Returns whether the user has a description of any of the images whose URLs have these digests."""
    return bool(digests) and bool(await _by_digest(tx, space, digests))


def with_captions(message: Message, captions: Mapping[str, str]) -> Message:
    """Returns the message, its images without a caption captioned from `captions`, which are by URL."""
    if not any(_lacks_caption(part) and part["url"] in captions for part in message.parts):
        return message
    parts = [
        {**part, "caption": captions.get(part["url"], "")} if _lacks_caption(part) else part for part in message.parts
    ]
    return replace(message, parts=tuple(parts))


async def _known(tx: Tx, space: Space, urls: Sequence[str]) -> dict[str, str]:
    """Descriptions by URL, of those images that have one."""
    digests = {digest_of_url(url): url for url in urls}
    found = await _by_digest(tx, space, list(digests))
    return {digests[digest]: description for digest, description in found.items()}


async def _by_digest(tx: Tx, space: Space, digests: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    wanted = sorted(digests)
    for start in range(0, len(wanted), _DIGESTS):
        # Filled up with the last one, so that the statement is the same for any number of images.
        some = (wanted[start : start + _DIGESTS] + wanted[-1:] * _DIGESTS)[:_DIGESTS]
        rows = await tx.fetch(_LOOK_UP, space.account, space.user, *some)
        found |= {row["digest"]: row["description"] for row in rows}
    return found


def _lacks_caption(part: dict[str, object]) -> bool:
    return part["type"] == "image" and not part.get("caption")
