"""What the pieces of a long conversation give, put together so that no memory is touched twice.

| earlier | later, on the same memory | made of them |
|---|---|---|
| write | write | one write: the later value of a text, below the earlier one where it leaves most of its lines out; the sum of a number that adds up; the first value of an immutable field; of a type that is only added both stay, unless they are equal |
| write | edit | the write with the edit applied |
| edit | edit | one edit: what is given whole later stands for what was there before, blocks follow blocks, numbers that add up are added |
| edit | write | both, the server merges |
| write, edit | delete | the delete; nothing at all where only the earlier write would have made the memory |
| delete | delete | one |
| delete | edit | the edit: the later piece has the last word |
| delete | write | both: it is another memory |

Blocks that do not fit what the earlier piece gave stay in an edit of their own; the server refuses it and asks for
repair. Operations for several owners at once are compared as a whole. Only operations that reach the same owners are put
together, each with the messages of these alone: nothing that is made of two goes where none of them would have gone.
"""  # noqa: E501 (a table)

from collections.abc import Mapping, Sequence
from typing import Final

from extractor.anthropic_engine.operations import MOST_RANGES, MOST_REASON
from extractor.anthropic_engine.targets import Targets
from runekeep.v1 import common_pb2, extractor_service_pb2, memory_service_pb2
from schemas.merge import kept
from schemas.patch import PatchError, SearchReplaceBlock, apply_blocks

Operation = extractor_service_pb2.MemoryOperation

_LINE_KEPT: Final = 0.5
"""Share of a line's words with which it counts as still there: it may have been reworded."""


class Composer:
    """Takes the operations of one piece after the other. `known`: memories that are there for certain, by URI."""

    def __init__(self, targets: Targets, known: Mapping[str, str]) -> None:
        self.operations: list[Operation] = []
        self._targets = targets
        self._known = known

    def add(self, operations: Sequence[Operation]) -> None:
        """The operations of the next piece. Those of one piece are left as they are: the server judges them."""
        earlier = len(self.operations)
        for operation in operations:
            self.operations.append(operation)
            earlier = self._compose(earlier)

    def _compose(self, earlier: int) -> int:
        """Puts the last operation together with one of the first `earlier`; how many of those there are then."""
        if not earlier:
            return 0
        later = self.operations[-1]
        uris = self._uris(later)
        for place in range(earlier - 1, -1, -1):
            if not uris or self._uris(self.operations[place]) != uris:
                continue
            made = self._at_the_same_owners(self.operations[place], later, uris)
            if made is None:
                continue
            del self.operations[-1]
            self.operations[place : place + 1] = made
            return earlier - 1 + len(made)
        return earlier

    def _at_the_same_owners(self, first: Operation, later: Operation, uris: frozenset[str]) -> list[Operation] | None:
        """What stands for two operations on the same memories; None where both stay."""
        name = self._type_of(first, uris) or self._type_of(later, uris)
        owners = self._targets.reached(first, name)
        if not owners or owners != self._targets.reached(later, name):
            return None
        one, other = (self._targets.narrowed(each, name, owners) for each in (first, later))
        return None if one is None or other is None else self._together(one, other, name, uris)

    def _together(self, first: Operation, later: Operation, name: str, uris: frozenset[str]) -> list[Operation] | None:
        match first.WhichOneof("operation"), later.WhichOneof("operation"):
            case "write", "write":
                return self._rewritten(first, later)
            case "write", "edit":
                return self._edited(first, later)
            case "edit", "edit":
                return self._joined(first, later, name)
            case "write", "delete":
                return [later] if uris & self._known.keys() else []
            case (("edit" | "delete"), "delete"):
                return [with_messages(later, first)]
            case "delete", "edit":
                return [later]
        return None

    def _type_of(self, operation: Operation, uris: frozenset[str]) -> str:
        """Of the memory that it is about; empty where nobody knows."""
        return operation.write.memory_type or next((self._known[uri] for uri in uris if uri in self._known), "")

    def _uris(self, operation: Operation) -> frozenset[str]:
        match operation.WhichOneof("operation"):
            case "write":
                return frozenset(target.uri for target in self._targets.of(operation))
            case "edit":
                return frozenset({operation.edit.uri})
        return frozenset({operation.delete.uri})

    def _rewritten(self, first: Operation, later: Operation) -> list[Operation] | None:
        kind = self._targets.types[later.write.memory_type]
        if kind.operation_mode == memory_service_pb2.OPERATION_MODE_ADD_ONLY:
            return [with_messages(first, later)] if first.write.fields == later.write.fields else None
        made = with_messages(first, later)
        for name, value in later.write.fields.items():
            if _merge_op([kind], name) == memory_service_pb2.MERGE_OP_PATCH and value.string_value:
                before = first.write.fields.get(name, common_pb2.FieldValue()).string_value
                value = common_pb2.FieldValue(string_value=_nothing_lost(before, value.string_value))
            _set(kind, made.write, name, value)
        made.write.abstract = later.write.abstract or made.write.abstract
        made.write.overview = later.write.overview or made.write.overview
        return [made]

    def _edited(self, first: Operation, later: Operation) -> list[Operation] | None:
        kind = self._targets.types[first.write.memory_type]
        if kind.operation_mode == memory_service_pb2.OPERATION_MODE_ADD_ONLY:
            return None
        made = with_messages(first, later)
        for patch in later.edit.patches:
            view = patch.field in ("abstract", "overview")
            # Looking a field up would make it.
            there = first.write.fields.get(patch.field, common_pb2.FieldValue())
            before = getattr(made.write, patch.field) if view else there.string_value
            if patch.HasField("search_replace"):
                after = _applied(before, patch.search_replace)
                if after is None:
                    return None
                value = common_pb2.FieldValue(string_value=after)
            else:
                value = patch.value
            if view:
                setattr(made.write, patch.field, value.string_value or before)
            else:
                _set(kind, made.write, patch.field, value)
        return [made]

    def _joined(self, first: Operation, later: Operation, name: str) -> list[Operation] | None:
        kinds = [self._targets.types[name]] if name in self._targets.types else list(self._targets.types.values())
        made = with_messages(first, later)
        patches = {patch.field: patch for patch in made.edit.patches}
        for patch in later.edit.patches:
            before = patches.get(patch.field)
            if before is None:
                made.edit.patches.append(patch)
            elif patch.HasField("search_replace"):
                joined = _after(before, patch)
                if joined is None:
                    return None
                before.CopyFrom(joined)
            elif _merge_op(kinds, patch.field) == memory_service_pb2.MERGE_OP_SUM and before.HasField("value"):
                before.value.CopyFrom(added(before.value, patch.value))
            else:
                before.CopyFrom(patch)
        return [made]


def _set(
    kind: memory_service_pb2.MemoryType,
    write: extractor_service_pb2.WriteOp,
    name: str,
    value: common_pb2.FieldValue,
) -> None:
    """A later value of a field, by the field's merge operation."""
    merge_op = _merge_op([kind], name)
    if merge_op == memory_service_pb2.MERGE_OP_IMMUTABLE and name in write.fields:
        return
    if merge_op == memory_service_pb2.MERGE_OP_SUM and name in write.fields:
        value = added(write.fields[name], value)
    if value.WhichOneof("kind") != "string_value" or value.string_value:
        write.fields[name].CopyFrom(value)


def _merge_op(kinds: Sequence[memory_service_pb2.MemoryType], name: str) -> memory_service_pb2.MergeOp.ValueType | None:
    """Of the field, in whichever of the types the memory is; None where they do not agree, or have no such field."""
    found = {field.merge_op for kind in kinds for field in kind.fields if field.name == name}
    return found.pop() if len(found) == 1 else None


def _nothing_lost(before: str, after: str) -> str:
    """The later text, below the earlier one where it lacks most of its lines: then it says only what is new."""
    lines = [line.strip() for line in before.splitlines() if line.strip()]
    missing = [line for line in lines if kept(line.casefold(), after.casefold()) < _LINE_KEPT]
    if 2 * len(missing) <= len(lines):
        return after
    new = [line for line in after.splitlines() if not line.strip() or line.strip() not in lines]
    return "\n".join([before.rstrip("\n"), "\n".join(new).strip("\n")]).rstrip("\n")


def _after(before: common_pb2.FieldPatch, patch: common_pb2.FieldPatch) -> common_pb2.FieldPatch | None:
    """Blocks that come after an earlier change of the same field."""
    made = common_pb2.FieldPatch()
    made.CopyFrom(before)
    if before.HasField("value"):
        text = _applied(before.value.string_value, patch.search_replace)
        if text is None:
            return None
        made.value.string_value = text
        return made
    # What the model gave once, it tends to give again.
    new = [block for block in patch.search_replace.blocks if block not in before.search_replace.blocks]
    made.search_replace.blocks.extend(new)
    return made


def _applied(text: str, patch: common_pb2.SearchReplace) -> str | None:
    blocks = [SearchReplaceBlock(block.search, block.replace, block.start_line or None) for block in patch.blocks]
    try:
        return apply_blocks(text, blocks)
    except PatchError:
        return None


def added(first: common_pb2.FieldValue, more: common_pb2.FieldValue) -> common_pb2.FieldValue:
    """The sum of two numbers of one type."""
    if more.HasField("int64_value"):
        return common_pb2.FieldValue(int64_value=first.int64_value + more.int64_value)
    return common_pb2.FieldValue(float32_value=first.float32_value + more.float32_value)


def with_messages(operation: Operation, other: Operation) -> Operation:
    """A copy of the first that also comes from the messages of the second, and says why for both."""
    made = Operation()
    made.CopyFrom(operation)
    spans: list[tuple[int, int]] = []
    both = [*operation.ranges, *other.ranges]
    for start, end in sorted((one.start_sequence, one.end_sequence) for one in both):
        if spans and start <= spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
    # One that names no message is about the whole owner; it keeps that, and its owner.
    if operation.ranges and other.ranges and len(spans) <= MOST_RANGES:
        del made.ranges[:]
        made.ranges.extend(common_pb2.MessageRange(start_sequence=start, end_sequence=end) for start, end in spans)
    made.reason = "; ".join(dict.fromkeys(filter(None, (operation.reason, other.reason))))[:MOST_REASON]
    return made
