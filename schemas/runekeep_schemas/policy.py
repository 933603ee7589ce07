"""What extraction may write: a session's policy, and the plan that a commit derives from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runekeep_schemas.documents.uris import IdKind, is_safe_id
from runekeep_schemas.memory_types.model import Review
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_schemas.type_files.registry import Registry


class PolicyError(ValueError):
    """A policy in an undocumented form."""


class UnknownTypeError(PolicyError):
    """`memory_types` names types that do not exist."""

    def __init__(self, unknown: Iterable[str], known: Iterable[str]) -> None:
        self.unknown = tuple(unknown)
        self.known = tuple(known)
        names = ", ".join(repr(name[:80]) for name in self.unknown)
        super().__init__(f"memory_types has unknown names: {names}. It may name {', '.join(self.known)}")


class _Target(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    enabled: bool


class _PolicyJson(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    self_: _Target = Field(_Target(enabled=True), alias="self")
    peer: _Target = _Target(enabled=False)
    memory_types: list[str] | None = None
    session_skills: _Target | None = None
    review: Annotated[Review, Field(strict=False)] = Review.NONE


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """The targets and the types that may be written. `memory_types`: None allows every enabled type, () none.

    `session_skills_enabled`: None means the server's setting. `review`: which operations wait for review.
    """

    self_enabled: bool = True
    peer_enabled: bool = False
    memory_types: tuple[str, ...] | None = None
    session_skills_enabled: bool | None = None
    review: Review = Review.NONE

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Reads `{self: {enabled}, peer: {enabled}, memory_types, session_skills: {enabled}, review}`.

        Every part may be absent. Raises PolicyError for anything else.
        """
        try:
            parsed = _PolicyJson.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise PolicyError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        return cls(
            self_enabled=parsed.self_.enabled,
            peer_enabled=parsed.peer.enabled,
            memory_types=None if parsed.memory_types is None else tuple(parsed.memory_types),
            session_skills_enabled=None if parsed.session_skills is None else parsed.session_skills.enabled,
            review=parsed.review,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the form that `from_json` reads, without the parts that are None or empty."""
        value: dict[str, Any] = {
            "self": {"enabled": self.self_enabled},
            "peer": {"enabled": self.peer_enabled},
        }
        if self.memory_types is not None:
            value["memory_types"] = list(self.memory_types)
        if self.session_skills_enabled is not None:
            value["session_skills"] = {"enabled": self.session_skills_enabled}
        if self.review:
            value["review"] = self.review.value
        return value


@dataclass(frozen=True, slots=True)
class Plan:
    """What one commit extracts. It is resolved when the commit is made, and stored with its job.

    An empty tuple of types skips that phase.
    """

    allow_self: bool
    allowed_peer_ids: tuple[str, ...]
    long_term_types: tuple[str, ...]
    execution_types: tuple[str, ...]
    session_skills: bool
    summarize: bool = True
    review: Review = Review.NONE

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Reads the result of `to_json`."""
        return cls(
            allow_self=value["allow_self"],
            allowed_peer_ids=tuple(value["allowed_peer_ids"]),
            long_term_types=tuple(value["long_term_types"]),
            execution_types=tuple(value["execution_types"]),
            session_skills=value["session_skills"],
            summarize=value["summarize"],
            review=Review(value.get("review", "")),
        )

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON object with a key for every attribute, except for an empty review: the release before does not
        know it."""
        return {
            "allow_self": self.allow_self,
            "allowed_peer_ids": list(self.allowed_peer_ids),
            "long_term_types": list(self.long_term_types),
            "execution_types": list(self.execution_types),
            "session_skills": self.session_skills,
            "summarize": self.summarize,
            **({"review": self.review.value} if self.review else {}),
        }


def check_types(policy: MemoryPolicy, registry: Registry) -> None:
    """Raises UnknownTypeError if the whitelist names something that is neither a type nor session skills."""
    known = (*registry.names(), SESSION_SKILLS.name)
    unknown = [name for name in policy.memory_types or () if name not in known]
    if unknown:
        raise UnknownTypeError(unknown, known)


def resolve(policy: MemoryPolicy, registry: Registry, peers_in_batch: Iterable[str], session_skills: bool) -> Plan:
    """Returns the plan for a batch whose messages name `peers_in_batch`; unsafe peer ids are dropped.

    `session_skills` is the server's setting, which applies if the policy does not set its own. Session skills are
    extracted only if they are enabled, self is enabled, `memory_types` is absent or names them, and there is an
    execution phase. Raises UnknownTypeError as `check_types` does.
    """
    check_types(policy, registry)

    def allowed(name: str) -> bool:
        return policy.memory_types is None or name in policy.memory_types

    peers = dict.fromkeys(peer for peer in peers_in_batch if is_safe_id(IdKind.PEER, peer))
    allowed_peers = tuple(peers) if policy.peer_enabled else ()
    long_term = tuple(one.name for one in registry.long_term() if allowed(one.name))
    execution = tuple(one.name for one in registry.execution() if allowed(one.name))
    if not policy.self_enabled:
        execution = ()
    switched_on = policy.session_skills_enabled
    if switched_on is None:
        switched_on = session_skills
    return Plan(
        allow_self=policy.self_enabled,
        allowed_peer_ids=allowed_peers,
        long_term_types=long_term if policy.self_enabled or allowed_peers else (),
        execution_types=execution,
        session_skills=bool(execution) and switched_on and allowed(SESSION_SKILLS.name),
        review=policy.review,
    )
