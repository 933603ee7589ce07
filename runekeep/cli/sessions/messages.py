"""Messages as text."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from runekeep.client.sessions.messages import Message


def render_message(message: "Message") -> "Text":
    from rich.text import Text

    from runekeep.client.sessions.messages import ContextPart, ImagePart, TextPart, ToolPart

    speaker = message.speaker or message.peer_id or message.role
    when = message.created_at.strftime("%Y-%m-%d %H:%M UTC") if message.created_at else ""
    text = Text.assemble(
        (f"{message.sequence:>4} ", "dim"),
        (speaker, "bold green" if message.role == "user" else "bold blue"),
        (f" {when}", "dim"),
    )
    for part in message.parts:
        text.append("\n     ")
        match part:
            case TextPart():
                text.append(part.text)
            case ImagePart():
                text.append(f"[image] {part.caption or part.url[:60]}", style="magenta")
            case ContextPart():
                text.append(f"[context] {part.uri}", style="cyan")
            case ToolPart():
                style = {"completed": "green", "error": "red"}.get(part.status, "yellow")
                took = "" if part.duration_ms is None else f", {part.duration_ms:g} ms"
                text.append(f"[{part.tool_name}: {part.status}{took}] {part.output[:200]}", style=style)
    return text
