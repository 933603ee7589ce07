"""Descriptions of images by a model, stored so that no model has to look at an image twice.

A description belongs to the session whose extraction wrote it and is deleted with that session. It applies to the same
image, identified by its URL, in every session of the user. Stored messages never change: captions are merged in when a
message is read, when a job gets its input and when passages are written.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.common.byte_limits import count_within
from runekeep_storage.drivers.common.statement_lists import filled
from runekeep_storage.records import Message
from runekeep_storage.sessions import sessions, statements


@dataclass(frozen=True, slots=True)
class Described:
    """An image by its URL, and what it shows."""

    url: str
    text: str


def digest_of_url(url: str) -> str:
    """Returns the SHA-256 of the URL, which may be a megabyte long if it contains the image."""
    return hashlib.sha256(url.encode()).hexdigest()


async def keep(tx: Tx, space: Space, session_id: str, described: Sequence[Described]) -> None:
    """Stores descriptions with a session. A new one replaces the session's older one of the same image."""
    for one in described:
        await tx.execute(
            statements.STORE_DESCRIPTION,
            space.account,
            space.user,
            session_id,
            digest_of_url(one.url),
            one.text,
            tx.now(),
        )


async def captioned(tx: Tx, space: Space, messages: Sequence[Message]) -> list[Message]:
    """Returns the messages, with the user's newest description as the caption of each image that has none."""
    urls = uncaptioned(messages)
    if not urls:
        return list(messages)
    found = await _known(tx, space, urls)
    return [with_captions(message, found) for message in messages]


async def messages_page(
    tx: Tx, space: Space, session_id: str, first: int, last: int, limit: int, most_bytes: int
) -> tuple[list[Message], bool, bool]:
    """Like `sessions.messages_page`, with known captions merged in. Captions count up to about `most_bytes` per page
    too. Also returns whether any were added."""
    found, more = await sessions.messages_page(tx, space, session_id, first, last, limit, most_bytes)
    shown = await captioned(tx, space, found)
    added = [0 if new is old else _caption_bytes(new) for new, old in zip(shown, found, strict=True)]
    count = count_within(added, most_bytes)
    return shown[:count], more or count < len(shown), any(added)


def _caption_bytes(message: Message) -> int:
    return sum(len(part.get("caption", "").encode()) for part in message.parts)


def uncaptioned(messages: Sequence[Message]) -> list[str]:
    """Returns the distinct URLs of images without a caption."""
    return list(dict.fromkeys(part["url"] for message in messages for part in message.parts if _lacks_caption(part)))


async def is_any_described(tx: Tx, space: Space, digests: Sequence[str]) -> bool:
    """Returns whether the user has a description of any of the images whose URLs have these digests."""
    return bool(digests) and bool(await _by_digest(tx, space, digests))


def with_captions(message: Message, captions: Mapping[str, str]) -> Message:
    """Returns the message with captions from `captions` (by URL) for images that have none."""
    if not any(_lacks_caption(part) and part["url"] in captions for part in message.parts):
        return message
    parts = [
        {**part, "caption": captions.get(part["url"], "")} if _lacks_caption(part) else part for part in message.parts
    ]
    return replace(message, parts=tuple(parts))


async def _known(tx: Tx, space: Space, urls: Sequence[str]) -> dict[str, str]:
    """Returns the descriptions by URL, for images that have one."""
    digests = {digest_of_url(url): url for url in urls}
    found = await _by_digest(tx, space, list(digests))
    return {digests[digest]: description for digest, description in found.items()}


async def _by_digest(tx: Tx, space: Space, digests: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for some in filled(sorted(digests), statements.DESCRIPTIONS_DIGESTS):
        rows = await tx.fetch(statements.DESCRIPTIONS, space.account, space.user, *some)
        found |= {row["digest"]: row["description"] for row in rows}
    return found


def _lacks_caption(part: dict[str, object]) -> bool:
    return part["type"] == "image" and not part.get("caption")
