"""Merges the operations from the pieces of a long conversation, so that each memory is touched once.

| earlier | later, on the same memory | result |
|---|---|---|
| write | write | one write: the later text, appended to the earlier one if it omits most of its lines; the sum of an additive number; the first value of an immutable field; for an add-only type both stay, unless they are equal |
| write | edit | the write with the edit applied |
| edit | edit | one edit: a later whole value replaces the earlier change, blocks follow blocks, additive numbers are summed |
| edit | write | both, the server merges |
| write, edit | delete | the delete; nothing if only the earlier write would have created the memory |
| delete | delete | one |
| delete | edit | the edit: the later piece decides |
| delete | write | both: it is another memory |

Blocks that do not fit the earlier piece's result stay in a separate edit; the server refuses it and asks for repair.
Operations for several owners are compared as a whole. Only operations that reach the same owners are merged, each with
the messages of these owners only: a merged operation never reaches an owner that neither operation reached.
"""  # noqa: E501 (a table)

from collections.abc import Mapping, Sequence
from typing import Final

from runekeep.v1 import common_pb2, extractor_service_pb2, memory_service_pb2
from runekeep_extractor.answers.operations import MAX_RANGES, MAX_REASON
from runekeep_extractor.engine.merge_rules import combine, rule_named
from runekeep_extractor.pipeline.targets import Targets
from runekeep_schemas.documents.merge import kept
from runekeep_schemas.documents.patch import PatchError, SearchReplaceBlock, apply_blocks

Operation = extractor_service_pb2.MemoryOperation

_LINE_KEPT: Final = 0.5
"""Share of a line's words from which it counts as still present: it may have been reworded."""


class Composer:
    """Merges the operations of successive pieces. `known`: memories that certainly exist, by URI."""

    def __init__(self, targets: Targets, known: Mapping[str, str]) -> None:
        self.operations: list[Operation] = []
        self._targets = targets
        self._known = known

    def add(self, operations: Sequence[Operation]) -> None:
        """Adds the operations of the next piece. Operations of the same piece are not merged: the server
        judges them.
        """
        earlier = len(self.operations)
        for operation in operations:
            self.operations.append(operation)
            earlier = self._compose(earlier)

    def _compose(self, earlier: int) -> int:
        """Merges the last operation with one of the first `earlier` ones. Returns how many of those remain."""
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
        """Returns the merge of two operations on the same memories; None if both stay."""
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
        """Returns the memory type that the operation concerns; empty if it is unknown."""
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
            if rule_named(name, kind).takes_blocks and value.string_value:
                before = first.write.fields.get(name, common_pb2.FieldValue()).string_value
                value = common_pb2.FieldValue(string_value=_nothing_lost(before, value.string_value))
            _set(kind, made.write, name, value)
        made.write.abstract = later.write.abstract or made.write.abstract
        made.write.overview = later.write.overview or made.write.overview
        return [made]

    def _edited(self, first: Operation, later: Operation) -> list[Operation] | None:
        kind = self._targets.types[first.write.memory_type]
        made = with_messages(first, later)
        for patch in later.edit.patches:
            if patch.HasField("rename"):
                made.write.fields[patch.field].CopyFrom(patch.rename)
                continue
            view = patch.field in ("abstract", "overview")
            # Indexing a missing field would create it.
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
            elif (rule := rule_named(patch.field, *kinds)).combine is not None and before.HasField("value"):
                before.value.CopyFrom(combine(rule, before.value, patch.value))
            else:
                before.CopyFrom(patch)
        return [made]


def _set(
    kind: memory_service_pb2.MemoryType,
    write: extractor_service_pb2.WriteOp,
    name: str,
    value: common_pb2.FieldValue,
) -> None:
    """Sets a later value of a field by the field's merge rule."""
    if name in write.fields:
        rule = rule_named(name, kind)
        if rule.keeps_first:
            return
        value = combine(rule, write.fields[name], value)
    if value.WhichOneof("kind") != "string_value" or value.string_value:
        write.fields[name].CopyFrom(value)


def _nothing_lost(before: str, after: str) -> str:
    """Returns the later text. If it lacks most lines of the earlier text it only adds to it, so it is appended."""
    lines = [line.strip() for line in before.splitlines() if line.strip()]
    missing = [line for line in lines if kept(line.casefold(), after.casefold()) < _LINE_KEPT]
    if 2 * len(missing) <= len(lines):
        return after
    new = [line for line in after.splitlines() if not line.strip() or line.strip() not in lines]
    return "\n".join([before.rstrip("\n"), "\n".join(new).strip("\n")]).rstrip("\n")


def _after(before: common_pb2.FieldPatch, patch: common_pb2.FieldPatch) -> common_pb2.FieldPatch | None:
    """Returns a field patch with blocks added after an earlier change of the same field."""
    made = common_pb2.FieldPatch()
    made.CopyFrom(before)
    if before.HasField("value"):
        text = _applied(before.value.string_value, patch.search_replace)
        if text is None:
            return None
        made.value.string_value = text
        return made
    # Models tend to repeat blocks that they gave before.
    new = [block for block in patch.search_replace.blocks if block not in before.search_replace.blocks]
    made.search_replace.blocks.extend(new)
    return made


def _applied(text: str, patch: common_pb2.SearchReplace) -> str | None:
    blocks = [SearchReplaceBlock(block.search, block.replace, block.start_line or None) for block in patch.blocks]
    try:
        return apply_blocks(text, blocks)
    except PatchError:
        return None


def with_messages(operation: Operation, other: Operation) -> Operation:
    """Returns a copy of the first operation that also has the messages and the reason of the second."""
    made = Operation()
    made.CopyFrom(operation)
    spans: list[tuple[int, int]] = []
    both = [*operation.ranges, *other.ranges]
    for start, end in sorted((one.start_sequence, one.end_sequence) for one in both):
        if spans and start <= spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
    # An operation without messages concerns the whole owner; it keeps that, and its owner.
    if operation.ranges and other.ranges and len(spans) <= MAX_RANGES:
        del made.ranges[:]
        made.ranges.extend(common_pb2.MessageRange(start_sequence=start, end_sequence=end) for start, end in spans)
    made.reason = "; ".join(dict.fromkeys(filter(None, (operation.reason, other.reason))))[:MAX_REASON]
    return made
