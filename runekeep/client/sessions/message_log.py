"""Collects messages that are read one by one, and joins results of tools with their calls."""

from dataclasses import replace

from runekeep.client.sessions.messages import Message, ToolPart


class MessageLog:
    """`messages` are those that were added, in order."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._open_calls: dict[str, tuple[int, int]] = {}
        """Id of a call that has no result yet to the places of its message and part."""

    def add(self, message: Message) -> None:
        """Adds a message. Results of its calls may follow."""
        for place, part in enumerate(message.parts):
            if isinstance(part, ToolPart):
                self._open_calls[part.tool_id] = len(self.messages), place
        self.messages.append(message)

    def finish_call(
        self, call_id: str, output: str, *, is_error: bool, duration_ms: float | None = None, total_tokens: int = 0
    ) -> bool:
        """Puts the result of a call into its part. Returns False if no such call is open."""
        place = self._open_calls.pop(call_id, None)
        if place is None:
            return False
        message = self.messages[place[0]]
        parts = list(message.parts)
        call = parts[place[1]]
        assert isinstance(call, ToolPart)
        parts[place[1]] = replace(
            call,
            output=output,
            status="error" if is_error else "completed",
            duration_ms=duration_ms,
            total_tokens=total_tokens,
        )
        self.messages[place[0]] = replace(message, parts=parts)
        return True
