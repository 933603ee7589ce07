"""What a job may write, and about whom."""

from dataclasses import dataclass

from extractor.engine import Job
from runekeep.v1 import common_pb2, memory_service_pb2

SELF = ""


@dataclass(frozen=True, slots=True)
class Permit:
    """The types of the long-term phase, by name, and whose memories may be written."""

    types: dict[str, memory_service_pb2.MemoryType]
    allow_self: bool
    peers: frozenset[str]

    @classmethod
    def of(cls, job: Job) -> "Permit":
        """Read from the plan. A type that the plan names and the input does not describe is left out."""
        plan = job.assignment.plan
        named = set(plan.long_term_types)
        types = {type.name: type for type in job.memory_types if type.name in named}
        return cls(types, plan.allow_self, frozenset(plan.allowed_peer_ids))

    def type(self, name: str, *fields: str) -> memory_service_pb2.MemoryType | None:
        """The type, where it may be written and has these fields: an operator may have replaced it by another."""
        type = self.types.get(name)
        if type is None or not set(fields) <= {field.name for field in type.fields}:
            return None
        return type

    def owner(self, message: common_pb2.Message) -> str | None:
        """Whose memory a message feeds: SELF, a peer id, or None for nobody's."""
        if not message.peer_id:
            return SELF if self.allow_self else None
        return message.peer_id if message.peer_id in self.peers else None
