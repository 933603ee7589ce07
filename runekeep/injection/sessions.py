"""Sessions that nobody commits by hand."""

from collections.abc import Sequence

from runekeep import AlreadyExistsError, AsyncClient, AsyncSession, Message

IDLE_SECONDS = 1800.0
"""After which a session commits by itself: not every caller says that a session has ended."""
PENDING_TOKENS = 20_000


async def open_session(client: AsyncClient, session_id: str, title: str = "") -> AsyncSession:
    """Creates the session with automatic commits, if it does not exist."""
    try:
        return await client.create_session(
            session_id, title=title, auto_commit={"idle": IDLE_SECONDS, "pending_tokens": PENDING_TOKENS}
        )
    except AlreadyExistsError:
        return await client.get_session(session_id)


async def add_new(session: AsyncSession, messages: Sequence[Message]) -> None:
    """Adds up to 100 messages, all with ids. One that the session has stays as it is, even if it was other then."""
    try:
        await session.add_messages(messages)
    except AlreadyExistsError:
        for message in messages:
            try:
                await session.add_messages([message])
            except AlreadyExistsError:
                continue
