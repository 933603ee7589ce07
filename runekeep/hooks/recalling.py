"""What a hook adds to a prompt."""

from dataclasses import dataclass

from runekeep import AsyncClient, NotFoundError
from runekeep.client.memories.results import RecallResult
from runekeep.hooks.events import HookEvent, Moment
from runekeep.injection.block import strip_memory, wrap_memory

MAX_QUERY_CHARS = 2_000


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
        found = await _recall_once(client, query, event.session_id, budgets.prompt)
    texts = [text for text in (found["stable_text"], found["text"]) if text]
    return wrap_memory("\n\n".join(texts)) if texts else ""


async def _recall_once(client: AsyncClient, query: str, session: str, budget: int) -> RecallResult:
    try:
        return await client.recall(query, session, token_budget=budget)
    except NotFoundError:
        # Nothing of this session was handed in yet.
        return await client.recall(query, token_budget=budget)
