"""Changes of the embedder, as operators ask for them: checked before they start."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from runekeep.v1 import admin_service_pb2 as pb
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.errors import invalid
from runekeep_server.settings import Settings
from runekeep_server.settings.fields import variable
from runekeep_storage.database import Tx
from runekeep_storage.embedders import KNOWN, Embedder, EmbedderUnavailable, embedding_needs
from runekeep_storage.index.base import VectorSpace
from runekeep_storage.indexing import embedder_change
from runekeep_storage.indexing.embedder_change import Change, ChangeRefused, ChangeState
from runekeep_storage.relay.relay import EMBEDDER
from runekeep_storage.store import Store

CHECK_SECONDS: Final = 25.0
"""How long the new embedder may take for its first vector; it may have to load."""

_Work = Callable[[Tx], Awaitable[Change]]
_STEPS: Mapping[int, _Work] = {
    pb.EMBEDDER_ACTION_PAUSE: embedder_change.pause,
    pb.EMBEDDER_ACTION_RESUME: embedder_change.resume,
    pb.EMBEDDER_ACTION_UNDO: embedder_change.undo,
    pb.EMBEDDER_ACTION_FINISH: embedder_change.finish,
}


class EmbedderChanges:
    """The changes of one store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings

    async def change(self, request: pb.ChangeEmbedderRequest) -> pb.EmbedderChange:
        """Raises ApiError for a change that cannot be made, IndexUnavailable."""
        try:
            if request.action == pb.EMBEDDER_ACTION_START:
                await self._start(request)
            else:
                if request.embedder:
                    raise invalid("embedder", "is only for a start", "Leave it out")
                if request.action == pb.EMBEDDER_ACTION_FINISH:
                    await self._check_settings()
                await self._store.all_spaces.write_global(_STEPS[request.action])
        except ChangeRefused as error:
            raise invalid("action", f"does not fit: {error}") from None
        self._store.relay.wake(EMBEDDER)
        found = await self.read()
        assert found is not None, "there is a change now"
        return found

    async def read(self) -> pb.EmbedderChange | None:
        """Returns the newest change, None if there was none."""
        found = await self._store.all_spaces.read_global(_read)
        return None if found is None else _to_wire(*found, self._problem(found[0]))

    async def _start(self, request: pb.ChangeEmbedderRequest) -> None:
        name = request.embedder
        source_name, source = await self._source()
        candidates = self._candidates(name)
        try:
            # The last one is that of `next_embedding`.
            target = next((one for one in reversed(candidates) if one.model != source.model), None)
            if target is None:
                if candidates:
                    raise invalid("embedder", f"is the one that the store has (model {source.model!r})")
                raise invalid("embedder", f"{name!r} is not described by the settings of this server", _describe(name))
            await _check(target)
            space = VectorSpace(target.model, target.dimension)
        finally:
            for one in candidates:
                await one.close()
        await self._store.all_spaces.write_global(
            embedder_change.start, source_name, source, name, space, request.rows_per_second
        )

    def _candidates(self, name: str) -> list[Embedder]:
        if name not in KNOWN or name == "none":
            known = ", ".join(one for one in KNOWN if one != "none")
            raise invalid("embedder", f"must be one of {known}")
        # The default endpoint says what the vectors are. An account whose own endpoint is away must not stop the change
        # for all others.
        return self._store.embedder_set.described(name, of_accounts=False)

    async def _source(self) -> tuple[str, VectorSpace]:
        """Returns the name and the space of the embedder that the store has."""
        await self._store.attachment.id()
        space, change = self._store.attachment.main, self._store.attachment.change
        if change is None or space == self._store.vector_space:
            return self._settings.embedder, space
        name = change.name if space == change.target else change.source_name
        if not change.is_open:
            # Servers set to neither embedder of a change do not search.
            raise invalid(
                "action",
                f"comes too early: RUNEKEEP_EMBEDDER is {self._settings.embedder} here, and the store has {name}",
                f"Set it to {name}, with its model {space.model!r}, restart all servers, then start",
            )
        return name, space

    def _problem(self, change: Change) -> str:
        """Returns what stops the change, or what is wrong after an undone one; empty for nothing."""
        if change.state in (ChangeState.UNDOING, ChangeState.UNDONE) and self._store.vector_space == change.target:
            return (
                f"RUNEKEEP_EMBEDDER is {self._settings.embedder} at the server that answers: set it back to"
                f" {change.source_name}, with its model {change.source.model!r}, and restart all servers"
            )
        return change.problem

    async def _check_settings(self) -> None:
        change = await self._store.all_spaces.read_global(embedder_change.current)
        if change is not None and change.is_open and self._store.vector_space != change.target:
            raise invalid(
                "action",
                f"comes too early: RUNEKEEP_EMBEDDER is still {self._settings.embedder} here, and a server does not"
                " start without the vectors of its embedder",
                f"Set it to {change.name}, with its model {change.target.model!r}, restart all servers, then finish",
            )


async def _check(embedder: Embedder) -> None:
    """Raises ApiError unless the embedder makes vectors as its description says."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await embedder.warm()
    except TimeoutError:
        raise _unusable(f"it made no vector within {CHECK_SECONDS:g} s") from None
    except EmbedderUnavailable as error:
        raise _unusable(str(error)) from None


def _unusable(why: str) -> ApiError:
    return invalid("embedder", f"cannot be used: {why}", "Nothing was changed")


def _describe(name: str) -> str:
    variables = (variable(f"next_embedding.{need}") for need in embedding_needs(name))
    return f"Set {', '.join(variables)} on all servers and restart them"


async def _read(tx: Tx) -> tuple[Change, int] | None:
    change = await embedder_change.current(tx)
    if change is None:
        return None
    return change, await embedder_change.spaces_left(tx, change.number) if change.is_open else 0


def _to_wire(change: Change, left: int, problem: str) -> pb.EmbedderChange:
    found = pb.EmbedderChange(
        state=pb.EmbedderChangeState.Value(f"EMBEDDER_CHANGE_STATE_{change.state.name}"),
        from_embedder=change.source_name,
        from_model=change.source.model,
        embedder=change.name,
        model=change.target.model,
        rows_per_second=change.rows_per_second,
        total_rows=change.total_rows,
        done_rows=change.done_rows,
        users_left=left,
        problem=problem,
    )
    found.start_time.FromMicroseconds(change.started_at)
    is_making = change.state is ChangeState.RUNNING and left and change.total_rows >= 0 and not change.problem
    if is_making and change.rows_per_hour:
        rows = max(change.total_rows - change.done_rows, 0)
        found.remaining.FromSeconds(round(3600 * rows / change.rows_per_hour))
    return found
