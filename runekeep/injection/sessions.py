"""Sessions that nobody commits by hand."""

from collections.abc import Sequence

from runekeep import AlreadyExistsError, AsyncClient, AsyncSession, InvalidArgumentError, Message

IDLE_SECONDS = 1800.0
"""After which a session commits by itself: not every caller says that a session has ended."""
PENDING_TOKENS = 20_000
MAX_TITLE_CHARS = 200


async def open_session(client: AsyncClient, session_id: str, title: str = "") -> AsyncSession:
    """Creates the session with automatic commits, if it does not exist."""
    try:
        return await client.create_session(
            session_id,
            title=title[:MAX_TITLE_CHARS],
            auto_commit={"idle": IDLE_SECONDS, "pending_tokens": PENDING_TOKENS},
        )
    except AlreadyExistsError:
        return await client.get_session(session_id)


async def add_new(session: AsyncSession, messages: Sequence[Message]) -> list[Exception]:
    """Adds up to 100 messages, all with ids. A message that the session has stays as it is, even if its text differs.

    Skips messages that cannot be sent or that the server finds invalid, and returns the error of each.
    """
    refused: list[Exception] = []
    try:
        await session.add_messages(messages)
    except (AlreadyExistsError, InvalidArgumentError, ValueError, TypeError):
        for message in messages:
            try:
                await session.add_messages([message])
            except AlreadyExistsError:
                continue
            except (InvalidArgumentError, ValueError, TypeError) as error:
                refused.append(error)
    return refused
