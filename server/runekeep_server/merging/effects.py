"""What single operations of an output do to memories, and which of them wait for review."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from runekeep_schemas.documents.merge import split_words
from runekeep_schemas.memory_types.model import VIEW_FIELDS, Field, FieldValue, MemoryType, Review

Fields = Mapping[str, FieldValue]


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of one operation on one memory, after the operations before it. `before` and `after`: its fields; None
    if it does not exist. `is_move`: the memory goes on under another URI, where another effect says how. `is_blocked`:
    the operation would delete the memory, and other operations of the output prevent it.
    """

    operation_index: int
    uri: str
    type: MemoryType
    before: Fields | None
    after: Fields | None
    is_move: bool = False
    is_blocked: bool = False

    @property
    def changed(self) -> bool:
        return self.before != self.after

    @property
    def removes(self) -> bool:
        """Whether it deletes the memory, would delete it without the other effects, or removes a word from a field."""
        if self.is_blocked:
            return True
        if self.before is None or self.is_move:
            return False
        if self.after is None:
            return True
        fields = filter(can_lose_text, self.type.fields)
        return any(_loses(self.before.get(one.name, ""), self.after.get(one.name, "")) for one in fields)


def can_lose_text(field: Field) -> bool:
    """Returns whether an operation may take something out of a field. Counters are only added to, and views say what
    the fields say."""
    return not field.merge_rule.adds and field.name not in VIEW_FIELDS


def _loses(before: FieldValue, after: FieldValue) -> bool:
    if before == after:
        return False
    return not Counter(split_words(str(before))) <= Counter(split_words(str(after)))


def held_operations(effects: Iterable[Effect], review: Review) -> dict[int, list[Effect]]:
    """Returns the operations that wait for review, in order, with their effects. `review`: that of the session; the
    memory types add their own.

    Operations on the same memory wait together, because a later one builds on an earlier one. So the others that were
    merged do the same without them.
    """
    of_operation: dict[int, list[Effect]] = defaultdict(list)
    on_memory: dict[str, set[int]] = defaultdict(set)
    for effect in effects:
        if effect.operation_index >= 0:
            of_operation[effect.operation_index].append(effect)
            on_memory[effect.uri].add(effect.operation_index)
    waiting = [index for index, some in of_operation.items() if any(_asks(one, review) for one in some)]
    held: set[int] = set()
    while waiting:
        index = waiting.pop()
        if index not in held:
            held.add(index)
            for effect in of_operation[index]:
                # Taken once: there may be thousands of operations on one memory.
                waiting += on_memory.pop(effect.uri, ())
    return {index: of_operation[index] for index in sorted(held)}


def _asks(effect: Effect, review: Review) -> bool:
    reviews: Collection[Review] = (review, effect.type.review)
    return (Review.ALL in reviews and effect.changed) or (Review.DESTRUCTIVE in reviews and effect.removes)
