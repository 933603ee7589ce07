"""What a hook adds to a prompt."""

from dataclasses import dataclass

from runekeep import AsyncClient
from runekeep.hooks.events import HookEvent, Moment
from runekeep.injection.block import strip_memory, wrap_memory
from runekeep.injection.texts import MAX_QUERY_CHARS


@dataclass(frozen=True, slots=True)
class Budgets:
    """Maximum tokens of recalled text: at the start of a session, and with each prompt."""

    start: int = 800
    prompt: int = 600


async def recall_for(client: AsyncClient, event: HookEvent, budgets: Budgets) -> str:
    """Returns the marked block for a prompt; empty if nothing relevant is known.

    A session starts with the profile, preferences and open plans, and what is known of the project. A prompt gets what
    is relevant to it, and nothing that the session got before.
    """
    if event.moment is Moment.START:
        half = budgets.start // 2
        if event.project:
            found = await client.recall(event.project, parts=["stable", "query"], stable_budget=half, token_budget=half)
        else:
            found = await client.recall(parts=["stable"], stable_budget=budgets.start)
    else:
        query = strip_memory(event.text)[:MAX_QUERY_CHARS].strip()
        if not query:
            return ""
        found = await client.recall(query, event.session_id, token_budget=budgets.prompt)
    texts = [text for text in (found.stable_text, found.text) if text]
    return wrap_memory("\n\n".join(texts)) if texts else ""
