"""Routes the operations of an output to the user, to peers, or nowhere, with the reason.

`docs/reference/routing.md` has the table of all combinations. In short: `peer_id` and the URI name the subject of a
memory, and ranges name the messages that it is based on. If only ranges are given, the speakers are the subjects.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runekeep.v1 import common_pb2
from runekeep_schemas.documents.uris import IdKind, is_safe_id
from runekeep_schemas.policy import Plan
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_server.merging.batch import Batch, Selection
from runekeep_storage.records import Message

SELF = ""
"""The owner id of the user, next to peer ids."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Why an operation is skipped; `reason` is one of the stable words of LeftOut."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Target:
    """An owner, and the messages of the ranges on which the owner's memory is based."""

    owner: str
    messages: Selection


_INVALID_RANGES = Skipped("invalid_ranges", "a range is reversed, or begins or ends outside of the batch")


class Router:
    """Routes the operations of one batch."""

    def __init__(self, plan: Plan, batch: Sequence[Message]) -> None:
        self._plan = plan
        self.batch = Batch(batch)
        self._peers = {message.peer_id for message in batch if message.peer_id}

    def allows_type(self, name: str) -> bool:
        plan = self._plan
        if name == SESSION_SKILLS.name:
            return plan.session_skills
        return name in plan.long_term_types or name in plan.execution_types

    def only_self(self, type_name: str) -> bool:
        return type_name == SESSION_SKILLS.name or type_name in self._plan.execution_types

    def route(self, type_name: str, peer_id: str, ranges: Sequence[common_pb2.MessageRange]) -> list[Target] | Skipped:
        """Returns the targets of a write, the user first.

        If `peer_id` is given, the target is that peer, whoever said the messages. Otherwise it is each owner of
        messages in the ranges.
        """
        named = self._messages(ranges)
        if self.only_self(type_name):
            refused = self.refuse_owner(SELF)
            return refused or [Target(SELF, named or self.batch.nothing)]
        if named is None:
            return _INVALID_RANGES
        if peer_id or not ranges:
            refused = self.refuse_owner(peer_id)
            return refused or [Target(peer_id, named)]
        refusals = {owner: self.refuse_owner(owner) for owner in named.owners()}
        allowed = sorted(owner for owner, refused in refusals.items() if refused is None)
        if allowed:
            return [Target(owner, named.of_owner(owner)) for owner in allowed]
        reasons = {refused.reason: refused for refused in refusals.values() if refused}
        if len(reasons) == 1:
            return next(iter(reasons.values()))
        return Skipped("nothing_writable", "none of those who said the messages in the ranges may be written about")

    def route_to(
        self, owner: str, type_name: str, peer_id: str, ranges: Sequence[common_pb2.MessageRange]
    ) -> Target | Skipped:
        """Returns the owner of an existing memory as the target of an edit or a delete, if the operation may change it.

        The URI names the subject, so anybody's words may change a peer's memory, as with a write that names the peer.
        The user has no peer id: words of peers alone never change the user's memories.
        """
        if refused := self.refuse_owner(owner):
            return refused
        named = self._messages(ranges)
        if self.only_self(type_name):
            return Target(owner, named or self.batch.nothing)
        if named is None:
            return _INVALID_RANGES
        if peer_id and (refused := self._refuse_peer(peer_id)):
            return refused
        if peer_id and peer_id != owner:
            return Skipped("nothing_writable", "the peer that is named is not the one whom the memory is about")
        if owner == SELF and ranges:
            named = named.of_owner(SELF)
            if not named:
                return Skipped(
                    "nothing_writable", "the memory is about the user, and the ranges hold only peers' words"
                )
        return Target(owner, named)

    def refuse_owner(self, owner: str) -> Skipped | None:
        """Returns why nothing may be written about an owner, or None if it may."""
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

    def _messages(self, ranges: Sequence[common_pb2.MessageRange]) -> Selection | None:
        """Returns the messages in the ranges, or None if a range is empty or leaves the batch."""
        return self.batch.select((one.start_sequence, one.end_sequence) for one in ranges)
