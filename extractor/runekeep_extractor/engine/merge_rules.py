"""Finds the merge rule of a field of the contract; `runekeep_schemas.memory_types.merge_rules` defines the rules."""

from typing import Final

from runekeep.v1 import common_pb2, memory_service_pb2
from runekeep_schemas.memory_types.merge_rules import MERGE_RULES, MergeRule

_RULES: Final = {memory_service_pb2.MergeOp.Value(f"MERGE_OP_{op.name}"): rule for op, rule in MERGE_RULES.items()}
_UNKNOWN: Final = MergeRule()


def rule_of(field: memory_service_pb2.MemoryField) -> MergeRule:
    """Returns the merge rule of a field, or a replacing rule for a merge_op that only a newer server knows: the server
    decides in the end."""
    return _RULES.get(field.merge_op, _UNKNOWN)


def rule_named(name: str, *kinds: memory_service_pb2.MemoryType) -> MergeRule:
    """Returns the merge rule of the field of that name in these types, or a replacing rule if they disagree or have
    no such field."""
    found = {rule_of(field) for kind in kinds for field in kind.fields if field.name == name}
    return found.pop() if len(found) == 1 else _UNKNOWN


def combine(rule: MergeRule, first: common_pb2.FieldValue, given: common_pb2.FieldValue) -> common_pb2.FieldValue:
    """Returns the value of a field after another value is given. `first`: the earlier one."""
    kind = given.WhichOneof("kind")
    if rule.combine is None or kind is None:
        return given
    return common_pb2.FieldValue(**{kind: rule.combine(getattr(first, kind), getattr(given, kind))})
