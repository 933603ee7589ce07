"""Checks that image descriptions in an output belong to images of the batch, and adds them to passages."""

import asyncio
from collections.abc import Sequence
from typing import Any

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.apply.result import NO_PLACE
from runekeep_storage.database import Space
from runekeep_storage.indexing import captions
from runekeep_storage.indexing.captions import Captioned
from runekeep_storage.records import Message
from runekeep_storage.sessions import image_descriptions
from runekeep_storage.sessions.image_descriptions import Described
from runekeep_storage.store import Store


class _Refused(Exception):
    """The description belongs to no image of the batch."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def described(
    batch: Sequence[Message], descriptions: Sequence[pb.ImageDescription]
) -> tuple[list[Described], list[dict[str, Any]]]:
    """Returns the descriptions of images of the batch, and LeftOut entries for the others. A repair cannot fix those,
    so they do not request one. They have no operation index; the message contains the index of the description, from
    0."""
    messages = {message.sequence: message for message in batch}
    taken: list[Described] = []
    refused: list[dict[str, Any]] = []
    for index, description in enumerate(descriptions):
        try:
            taken.append(Described(_url(messages, description), description.text))
        except _Refused as error:
            refused.append(
                {
                    "reason": error.reason,
                    "memory_type": "",
                    "uri": "",
                    "message": f"image description {index}: {error}",
                    "operation_index": NO_PLACE,
                }
            )
    return taken, refused


async def recaptioned(
    store: Store, space: Space, batch: Sequence[Message], described: Sequence[Described], *, withhold_secrets: bool
) -> list[Captioned]:
    """Returns the passages of the messages that show the described images. Call it outside of transactions."""
    texts = {one.url: one.text for one in described}
    shown = [message for message in batch if any(url in texts for url in image_descriptions.uncaptioned([message]))]
    if not shown:
        return []
    with_new = [image_descriptions.with_captions(message, texts) for message in shown]
    # Other images of the messages may have been described before.
    messages = await store.database.read(image_descriptions.captioned, space, with_new)
    # In a thread, because Python counts the words.
    return await asyncio.to_thread(captions.passages_of, messages, withhold_secrets=withhold_secrets)


def _url(messages: dict[int, Message], description: pb.ImageDescription) -> str:
    message = messages.get(description.message_sequence)
    if message is None:
        raise _Refused("no_such_image", f"message {description.message_sequence} is not of the batch")
    if description.part_index >= len(message.parts) or message.parts[description.part_index]["type"] != "image":
        where = f"part {description.part_index} of message {description.message_sequence}"
        raise _Refused("no_such_image", f"{where} is no image")
    return str(message.parts[description.part_index]["url"])
