"""Takes messages as applications have them: our own, and those of OpenAI's and Anthropic's APIs."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from runekeep.client.sessions.messages import Message


class SdkMessage(Protocol):
    """A message as the SDKs of OpenAI and Anthropic return it."""

    def model_dump(self, *, exclude_none: bool = ...) -> dict[str, Any]: ...


MessageForm: TypeAlias = Message | Mapping[str, Any] | SdkMessage
"""A Message; or a message in OpenAI's or Anthropic's form, as a dictionary or as the object that their SDK returns."""


def read_messages(given: Iterable[MessageForm], *, include_system: bool) -> list[Message]:
    """Returns the messages. Leaves out system prompts unless `include_system`.

    Raises ValueError, which names the message by its number from 0, for one that has another form, and if nothing is
    left.
    """
    if isinstance(given, (str, bytes, Mapping, Message)) or not isinstance(given, Iterable):
        raise ValueError(f"messages: expected a list of messages, not {type(given).__name__}")
    messages = list(given)
    for number, one in enumerate(messages):
        if not isinstance(one, (Message, Mapping)) and not hasattr(one, "model_dump"):
            form = "a Message, a dictionary, or a message of OpenAI's or Anthropic's SDK"
            raise ValueError(f"messages[{number}]: expected {form}, not {type(one).__name__}")
    own = [one for one in messages if isinstance(one, Message)]
    if len(own) == len(messages):
        return own
    # Pydantic, which most callers need not load.
    from pydantic import ValidationError

    from runekeep.client.sessions.chat_messages import ChatMessage, ChatReader, first_problem

    reader = ChatReader(lambda said: said.id, include_system=include_system)
    for number, one in enumerate(messages):
        if isinstance(one, Message):
            reader.take(one)
            continue
        try:
            said = one if isinstance(one, Mapping) else one.model_dump(exclude_none=True)
            reader.read(ChatMessage.model_validate(said))
        except ValidationError as error:
            raise ValueError(f"messages[{number}].{first_problem(error)}") from error
        except ValueError as error:
            raise ValueError(f"messages[{number}]: {error}") from error
    if not reader.messages and not reader.left_out:
        raise ValueError("no message is left: those that were given have no text, image or tool call")
    if not reader.messages:
        raise ValueError("no message is left: system prompts are left out, include_system=True keeps them")
    return reader.messages
