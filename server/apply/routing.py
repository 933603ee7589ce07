"""Where an operation goes: to the user, to peers, or nowhere, with the reason.

| operation says | goes to |
|---|---|
| no peer, no ranges | the user, if enabled |
| a peer of the batch | that peer, if enabled |
| a peer that is unsafe or not of the batch | nowhere |
| ranges | the owners of the messages in them, as far as enabled; a peer beside them narrows |
| an execution type or session skill | the user, whatever its ranges say |
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from runekeep.v1 import common_pb2
from schemas.policy import Plan
from schemas.session_skills import SESSION_SKILLS
from schemas.uris import IdKind, is_safe_id
from storage.records import Message

SELF = ""
"""The owner that is the user, beside peer ids."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Why an operation goes nowhere; `reason` is one of the stable words of LeftOut."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Target:
    """An owner, and the messages of the ranges that are the owner's."""

    owner: str
    messages: tuple[Message, ...]


class Router:
    """Routes the operations of one batch."""

    def __init__(self, plan: Plan, batch: Sequence[Message]) -> None:
        self._plan = plan
        self.batch = batch
        self._ordered = sorted(batch, key=lambda message: message.sequence)
        self._sequences = [message.sequence for message in self._ordered]
        self._peers = {message.peer_id for message in batch if message.peer_id}

    def allows_type(self, name: str) -> bool:
        plan = self._plan
        if name == SESSION_SKILLS.name:
            return plan.session_skills
        return name in plan.long_term_types or name in plan.execution_types

    def only_self(self, type_name: str) -> bool:
        return type_name == SESSION_SKILLS.name or type_name in self._plan.execution_types

    def route(self, type_name: str, peer_id: str, ranges: Sequence[common_pb2.MessageRange]) -> list[Target] | Skipped:
        """Targets of a new memory, the user first."""
        named = self._messages(ranges)
        if self.only_self(type_name):
            refused = self.refuse_owner(SELF)
            return refused or [Target(SELF, tuple(named or ()))]
        if named is None:
            return Skipped("invalid_ranges", "a range names no message of the batch")
        if peer_id and (refused := self._refuse_peer(peer_id)):
            return refused
        if not ranges:
            refused = self.refuse_owner(peer_id)
            return refused or [Target(peer_id, ())]
        owners = dict.fromkeys(message.peer_id for message in named)
        if peer_id:
            owners = {owner: None for owner in owners if owner == peer_id}
            if not owners:
                return Skipped("nothing_writable", "no message in the ranges is of the peer named beside them")
        refusals = {owner: self.refuse_owner(owner) for owner in owners}
        allowed = sorted(owner for owner, refused in refusals.items() if refused is None)
        if allowed:
            return [Target(o, tuple(m for m in named if m.peer_id == o)) for o in allowed]
        reasons = {refused.reason: refused for refused in refusals.values() if refused}
        if len(reasons) == 1:
            return next(iter(reasons.values()))
        return Skipped("nothing_writable", "none of the owners of the messages in the ranges may be written")

    def route_to(
        self, owner: str, type_name: str, peer_id: str, ranges: Sequence[common_pb2.MessageRange]
    ) -> Target | Skipped:
        """The owner of a memory that is there, when the operation may reach it: a memory never changes hands."""
        if refused := self.refuse_owner(owner):
            return refused
        targets = self.route(type_name, peer_id or (SELF if ranges else owner), ranges)
        if isinstance(targets, Skipped):
            return targets
        for target in targets:
            if target.owner == owner:
                return target
        return Skipped("nothing_writable", "the peer or the messages named are of another owner than the memory")

    def refuse_owner(self, owner: str) -> Skipped | None:
        """Why nothing may be written about an owner; None when it may."""
        if owner == SELF:
            return None if self._plan.allow_self else Skipped("self_disabled", "the policy keeps the user out")
        if owner in self._plan.allowed_peer_ids:
            return None
        return self._refuse_peer(owner) or Skipped("peer_disabled", "the policy keeps peers out")

    def _refuse_peer(self, peer_id: str) -> Skipped | None:
        if not is_safe_id(IdKind.PEER, peer_id):
            return Skipped("invalid_peer", "the peer's id is no safe name")
        if peer_id not in self._peers:
            return Skipped("peer_not_in_batch", "no message of the batch is of that peer")
        return None

    def _messages(self, ranges: Sequence[common_pb2.MessageRange]) -> list[Message] | None:
        """Returns the messages in the ranges, in order, or None if a range is empty or leaves the batch. Each message
        is visited once, however many ranges contain it."""
        found: list[Message] = []
        visited = 0
        for first, last in sorted((one.start_sequence, one.end_sequence) for one in ranges):
            if first > last or not (self._contains(first) and self._contains(last)):
                return None
            start = max(bisect_left(self._sequences, first), visited)
            end = bisect_right(self._sequences, last)
            found += self._ordered[start:end]
            visited = max(visited, end)
        return found

    def _contains(self, sequence: int) -> bool:
        index = bisect_left(self._sequences, sequence)
        return index < len(self._sequences) and self._sequences[index] == sequence
