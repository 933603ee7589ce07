"""The audit log of administrative calls, and of those that destroy or disclose in bulk.

The row of a call is in the store before the call is served: a call that cannot be logged is refused. How it ended is
written when it ends, so a row without a code is of a call that is under way, or whose server was killed meanwhile.
"""

import asyncio
import unicodedata
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import structlog

from server.identity import Caller, Principal
from storage import audit, deadline
from storage.audit import Call
from storage.database import Database
from storage.errors import DatabaseDamaged

MOST_CHARACTERS = 512
"""Of a subject that are kept: room for every URI with the longest names, and not for a request full of text."""
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of what moves the cursor, breaks lines, turns the direction of writing or is not seen at all."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class About:
    """What a call is about. `subject`: a URI, a key id, an account; never content. `account`: of an operator's call,
    the account that it concerns."""

    subject: str = ""
    account: str = ""


# Requests have no type in common that says what they hold.
EXPORT = "SpaceService/ExportSpace"
NOT_WRITTEN = 0
"""Stands for a row number when no row was written."""

AUDITED: Mapping[str, Callable[[Any], About | None]] = {
    "AdminService/CreateApiKey": lambda request: About(account=request.account),
    "AdminService/RotateApiKey": lambda request: About(request.key_id),
    "AdminService/RevokeApiKey": lambda request: About(request.key_id),
    "AdminService/UpdateAccountLimits": lambda request: About(request.account, request.account),
    "SessionService/DeleteSession": lambda request: About(request.session),
    "MemoryService/DeleteUser": lambda request: About(request.user),
    "HistoryService/RollbackRevision": lambda request: (
        None if request.preview else About(request.archive_uri or f"revision {request.revision}")
    ),
    # Not whose or what: a name that is erased must not be left here.
    "SpaceService/EraseData": lambda request: About(request.WhichOneof("scope") or ""),
    EXPORT: lambda request: About(),
    # A stream of requests, of which none says more.
    "SpaceService/ImportSpace": lambda requests: About(),
}
"""The calls that are logged, by service and method. None: not this one, it changes nothing."""


@dataclass(slots=True)
class Entry:
    """A row that was begun."""

    sequence: int
    call: Call
    of_user: bool
    about: About


_entry: ContextVar[Entry] = ContextVar("audit_entry")


def is_about(subject: str, account: str | None = None) -> None:
    """Says of the call at hand what could not be known before it was served, such as the id of what it made. Outside
    of a call that is logged it does nothing."""
    entry = _entry.get(None)
    if entry is not None:
        entry.about = About(subject, entry.about.account if account is None else account)


class Audit:
    """Writes the log. `close` in the end waits for what is being written."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writing: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Waits until what is being written is written."""
        while self._writing:
            await asyncio.wait(self._writing)

    async def begin(self, method: str, principal: Principal, request: Any, peer: str) -> Entry | None:
        """Writes the row of a call that is in AUDITED and makes it the entry of the call at hand; None for a call that
        changes nothing. Raises StoreUnavailable: then the call must not be served."""
        about = AUDITED[method](request)
        if about is None:
            return None
        # Callers name what they like; where people read it, it stays one line.
        about = replace(about, subject=_shown(about.subject))
        of_user = isinstance(principal, Caller)
        call = Call(
            method=method,
            actor=principal.actor,
            scope=principal.scope,
            account=principal.account if isinstance(principal, Caller) else about.account,
            user=principal.user if isinstance(principal, Caller) else "",
            subject=about.subject,
            trace_id=principal.trace.trace_id,
            peer=_plain(peer),
        )
        writing = self._run(self._begin(call, of_user))
        try:
            sequence = await asyncio.shield(writing)
        except DatabaseDamaged:
            if method != EXPORT:
                raise
            # The store takes no writes any more, but data must still be readable for a rescue. The server's log records
            # the call.
            sequence = NOT_WRITTEN
        except asyncio.CancelledError:
            # Whoever called has gone; the row is there all the same, or will be.
            self._run(self._abandoned(writing, call, of_user))
            raise
        entry = Entry(sequence, call, of_user, about)
        _entry.set(entry)
        return entry

    async def end(self, entry: Entry, code: str) -> None:
        """Writes how the call ended. A store that cannot take it leaves the row as of a call that did not end; what was
        done is done."""
        await asyncio.shield(self._run(self._end(entry, code)))

    async def _begin(self, call: Call, of_user: bool) -> int:
        deadline.outlive()
        if of_user:
            return await self._database.write(audit.begin_of, audit.lane(call.account), call)
        return await self._database.write(audit.begin, call)

    async def _abandoned(self, writing: "asyncio.Task[int]", call: Call, of_user: bool) -> None:
        await asyncio.wait([writing])
        if writing.exception() is None:
            await self._end(Entry(writing.result(), call, of_user, About(call.subject, call.account)), "CANCELLED")

    async def _end(self, entry: Entry, code: str) -> None:
        deadline.outlive()
        call, subject = entry.call, entry.about.subject
        account = call.account if entry.of_user else entry.about.account
        _log.info(
            "audit",
            sequence=entry.sequence,
            method=call.method,
            actor=call.actor,
            scope=call.scope,
            account=account,
            user=call.user,
            subject=subject,
            code=code,
            trace=call.trace_id,
            peer=call.peer,
        )
        if entry.sequence == NOT_WRITTEN:
            return
        try:
            if entry.of_user:
                await self._database.write(audit.end_of, audit.lane(account), entry.sequence, code, subject)
            else:
                await self._database.write(audit.end, entry.sequence, code, account, subject)
        except Exception:
            _log.exception("audit_not_ended", sequence=entry.sequence, code=code)

    def _run(self, work: Any) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.create_task(work)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task


def _shown(text: str) -> str:
    seen = ("\N{REPLACEMENT CHARACTER}" if unicodedata.category(one) in _UNSEEN else one for one in text)
    return "".join(seen)[:MOST_CHARACTERS]


def _plain(peer: str) -> str:
    """An address as people write it, of how gRPC does: `ipv6:%5B::1%5D:50051` as `[::1]:50051`."""
    kind, colon, address = peer.partition(":")
    return unquote(address) if colon and kind in ("ipv4", "ipv6") else peer
