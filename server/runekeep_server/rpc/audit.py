"""The audit log of administrative calls, and of calls that destroy or disclose data in bulk.

The row of a call is written before the call is served; a call that cannot be logged is refused. The status code is
written when the call ends. A row without a code belongs to a call that is in progress or whose server was killed.
"""

import asyncio
import unicodedata
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import structlog

from runekeep_server.identity import Caller, Principal
from runekeep_server.rpc.methods import Method
from runekeep_storage import deadline
from runekeep_storage.accounts import audit
from runekeep_storage.accounts.audit import Call
from runekeep_storage.database import Database
from runekeep_storage.errors import DatabaseDamaged

MAX_CHARACTERS = 512
"""Maximum characters of a subject: enough for every URI with the longest names, but not for a request full of text."""
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of characters that move the cursor, break lines, change the writing direction or are invisible."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class About:
    """What a call concerns. `subject` is a URI, a key id or an account, never content. `account` is the account of the
    caller, or the one that an operator's call concerns."""

    subject: str = ""
    account: str = ""


NOT_WRITTEN = 0
"""Stands for a row number when no row was written."""


@dataclass(slots=True)
class Entry:
    """A row of a call in progress."""

    sequence: int
    call: Call
    about: About


_entry: ContextVar[Entry] = ContextVar("audit_entry")


def is_about(subject: str, account: str | None = None) -> None:
    """Sets the subject of the current call, if it becomes known only while it is served, such as the id of a new
    resource. Does nothing outside of an audited call."""
    entry = _entry.get(None)
    if entry is not None:
        entry.about = About(subject, entry.about.account if account is None else account)


class Audit:
    """Writes the audit log. `close` waits for pending writes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writing: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Waits for pending writes."""
        while self._writing:
            await asyncio.wait(self._writing)

    async def begin(self, method: Method, principal: Principal, request: Any, peer: str) -> Entry | None:
        """Writes the row of a call of an audited method, and sets it as the entry of the current call. Returns None for
        a call that changes nothing. Raises StoreUnavailable; then the call must not be served."""
        about = _about(method, request)
        if about is None:
            return None
        # Callers choose names freely; the subject must stay on one line where people read it.
        account = principal.account if isinstance(principal, Caller) else about.account
        about = About(_shown(about.subject), account)
        call = Call(
            method=method.name,
            actor=principal.actor,
            scope=principal.scope,
            user=principal.user if isinstance(principal, Caller) else "",
            subject=about.subject,
            trace_id=principal.trace.trace_id,
            peer=_plain(peer),
        )
        writing = self._run(self._begin(account, call))
        try:
            sequence = await asyncio.shield(writing)
        except DatabaseDamaged:
            if not method.reads:
                raise
            # The store takes no writes any more, but an export must still be able to rescue the data. The server's log
            # records the call.
            sequence = NOT_WRITTEN
        except asyncio.CancelledError:
            # The caller is gone, but the row exists or will exist.
            self._run(self._end_abandoned(writing, call, about))
            raise
        entry = Entry(sequence, call, about)
        _entry.set(entry)
        return entry

    async def end(self, entry: Entry, code: str) -> None:
        """Writes the status code of the call. If the store is unavailable, the row stays without a code; the call's
        effects remain."""
        await asyncio.shield(self._run(self._end(entry, code)))

    async def _begin(self, account: str, call: Call) -> int:
        deadline.ignore_deadline()
        return await self._database.write_in_account(audit.begin, account, call)

    async def _end_abandoned(self, writing: "asyncio.Task[int]", call: Call, about: About) -> None:
        await asyncio.wait([writing])
        if writing.exception() is None:
            await self._end(Entry(writing.result(), call, about), "CANCELLED")

    async def _end(self, entry: Entry, code: str) -> None:
        deadline.ignore_deadline()
        call, account, subject = entry.call, entry.about.account, entry.about.subject
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
            await self._database.write_in_account(audit.end, account, entry.sequence, code, subject)
        except Exception:
            _log.exception("audit_not_ended", sequence=entry.sequence, code=code)

    def _run(self, work: Any) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.create_task(work)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task


def _about(method: Method, request: Any) -> About | None:
    """Returns what a call concerns, by the AuditRules of its method. None: it changes nothing and is not logged."""
    rules = method.audit
    assert rules is not None, "only audited methods are logged"
    if rules.unless and getattr(request, rules.unless):
        return None
    account = getattr(request, rules.account) if rules.account else ""
    for name in rules.subject:
        # For a oneof, only the name of its set field is logged: an erased name must not remain here.
        is_oneof = name in request.DESCRIPTOR.oneofs_by_name
        value = request.WhichOneof(name) if is_oneof else getattr(request, name)
        if value:
            return About(value if isinstance(value, str) else f"{name} {value}", account)
    return About(account=account)


def _shown(text: str) -> str:
    seen = ("\N{REPLACEMENT CHARACTER}" if unicodedata.category(one) in _UNSEEN else one for one in text)
    return "".join(seen)[:MAX_CHARACTERS]


def _plain(peer: str) -> str:
    """Formats a peer address for people: gRPC's `ipv6:%5B::1%5D:50051` becomes `[::1]:50051`."""
    kind, colon, address = peer.partition(":")
    return unquote(address) if colon and kind in ("ipv4", "ipv6") else peer
