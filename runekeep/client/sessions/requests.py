"""Converts what callers say about sessions to messages of the contract."""

from collections.abc import Mapping
from typing import Any

from google.protobuf import struct_pb2
from google.protobuf.json_format import ParseDict

from runekeep.client.sessions.results import AutoCommit, AutoCommitRules
from runekeep.client.wire.proto_json import enum_number
from runekeep.v1 import common_pb2, session_service_pb2


def policy_to_wire(policy: Mapping[str, Any] | None) -> common_pb2.MemoryPolicy | None:
    """Takes `SessionInfo.memory_policy`, or a dictionary: `{"self": {"enabled": bool}, "peer": {"enabled": bool},
    "memory_types": {"names": [...]}, "session_skills": {"enabled": bool}, "review": "destructive" or "all"}`.

    A key that is absent or None takes its default. `memory_types` may also be a list of names. Raises ValueError
    for another key or shape, so that a misspelt switch is reported.
    """
    if policy is None:
        return None
    wire = common_pb2.MemoryPolicy()
    fields = common_pb2.MemoryPolicy.DESCRIPTOR.fields_by_name
    for key, value in policy.items():
        if key not in fields:
            raise ValueError(f"memory_policy has no {key!r}; it has {', '.join(fields)}")
        if value is None:
            continue
        if key == "review":
            if value not in ("destructive", "all"):
                raise ValueError(f"memory_policy[{key!r}] is 'destructive' or 'all', not {value!r}")
            wire.review = common_pb2.ReviewMode.ValueType(enum_number(common_pb2.ReviewMode, value))
        elif key == "memory_types":
            names = value.get("names") if isinstance(value, Mapping) and len(value) == 1 else value
            if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
                raise ValueError(f'memory_policy[{key!r}] is {{"names": [...]}} or a list of names, not {value!r}')
            wire.memory_types.SetInParent()
            wire.memory_types.names.extend(names)
        elif isinstance(value, Mapping) and value.keys() == {"enabled"} and isinstance(value["enabled"], bool):
            getattr(wire, key).enabled = value["enabled"]
        else:
            raise ValueError(f'memory_policy[{key!r}] is {{"enabled": true or false}}, not {value!r}')
    return wire


def auto_commit_to_wire(rules: AutoCommit | AutoCommitRules | None) -> session_service_pb2.AutoCommit | None:
    """Raises ValueError for an unknown key, so that a misspelt bound is reported."""
    if rules is None:
        return None
    unknown = set(rules) - set(AutoCommit.__annotations__)
    if unknown:
        raise ValueError(f"auto_commit has {', '.join(AutoCommit.__annotations__)}, not {', '.join(sorted(unknown))}")
    wire = session_service_pb2.AutoCommit(
        pending_tokens=rules.get("pending_tokens", 0),
        message_count=rules.get("message_count", 0),
        keep_recent_count=rules.get("keep_recent_count", 0),
    )
    idle = rules.get("idle")
    if idle:
        wire.idle.FromNanoseconds(round(idle * 1e9))
    return wire


def skill_to_wire(skill: Mapping[str, Any]) -> session_service_pb2.SkillUsage:
    """`{"uri": str, "input": any JSON, "output": str, "success": bool}`. Raises ValueError for another key."""
    unknown = set(skill) - {"uri", "input", "output", "success"}
    if unknown:
        raise ValueError(f"a used skill has uri, input, output and success, not {', '.join(sorted(unknown))}")
    wire = session_service_pb2.SkillUsage(
        uri=skill["uri"], output=skill.get("output", ""), success=skill.get("success", False)
    )
    if skill.get("input") is not None:
        wire.input.CopyFrom(ParseDict(skill["input"], struct_pb2.Value()))
    return wire
