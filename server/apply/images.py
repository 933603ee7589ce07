"""Descriptions of images in an output: whether they are of images of the batch, and what passages say with them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from runekeep.v1 import extractor_service_pb2 as pb
from server.apply.result import NO_PLACE
from storage import captions, image_descriptions
from storage.captions import Captioned
from storage.database import Space
from storage.image_descriptions import Described
from storage.records import Message
from storage.store import Store


class _Refused(Exception):
    """A description of what is no image of the batch."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def described(
    batch: Sequence[Message], descriptions: Sequence[pb.ImageDescription]
) -> tuple[list[Described], list[dict[str, Any]]]:
    """Those that are of images of the batch, and entries of LeftOut for the others: nothing can be mended about them,
    so they ask for no repair. They are no operations: the message says which description it is, from 0.
    """
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
    store: Store, space: Space, batch: Sequence[Message], described: Sequence[Described]
) -> list[Captioned]:
    """Returns the passages of those messages of the batch that show the images described. Not in a transaction."""
    texts = {one.url: one.text for one in described}
    shown = [message for message in batch if any(url in texts for url in image_descriptions.uncaptioned([message]))]
    if not shown:
        return []
    with_new = [image_descriptions.with_captions(message, texts) for message in shown]
    # Others of their images may have been described before.
    messages = await store.database.read(image_descriptions.captioned, space, with_new)
    # In a thread: Python counts the words.
    return await asyncio.to_thread(captions.passages_of, messages)


def _url(messages: dict[int, Message], description: pb.ImageDescription) -> str:
    message = messages.get(description.message_sequence)
    if message is None:
        raise _Refused("no_such_image", f"message {description.message_sequence} is not of the batch")
    if description.part_index >= len(message.parts) or message.parts[description.part_index]["type"] != "image":
        where = f"part {description.part_index} of message {description.message_sequence}"
        raise _Refused("no_such_image", f"{where} is no image")
    return str(message.parts[description.part_index]["url"])
