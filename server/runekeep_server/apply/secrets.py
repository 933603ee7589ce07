"""Removes secrets from an output before it is processed.

Messages stay as people wrote them. But a memory outlives its conversation and is shown to every agent of
its user, so it must not contain their secrets.
"""

from collections.abc import Callable, Sequence

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb


class TextReplacer:
    """Copies items of an output. `replace` is called with each text and returns the text of the copy."""

    def __init__(self, replace: Callable[[str], str]) -> None:
        self._replace = replace

    def operations(self, operations: Sequence[pb.MemoryOperation]) -> list[pb.MemoryOperation]:
        return [self._operation(operation) for operation in operations]

    def summary(self, summary: common_pb2.Summary) -> common_pb2.Summary:
        return common_pb2.Summary(abstract=self._replace(summary.abstract), overview=self._replace(summary.overview))

    def images(self, descriptions: Sequence[pb.ImageDescription]) -> list[pb.ImageDescription]:
        """An image may show a screen or a card."""
        return [
            pb.ImageDescription(
                message_sequence=one.message_sequence, part_index=one.part_index, text=self._replace(one.text)
            )
            for one in descriptions
        ]

    def _operation(self, operation: pb.MemoryOperation) -> pb.MemoryOperation:
        copy = pb.MemoryOperation()
        copy.CopyFrom(operation)
        copy.reason = self._replace(copy.reason)
        if copy.HasField("write"):
            for value in copy.write.fields.values():
                self._value(value)
            copy.write.abstract = self._replace(copy.write.abstract)
            copy.write.overview = self._replace(copy.write.overview)
        for patch in copy.edit.patches if copy.HasField("edit") else ():
            for kind in ("value", "rename"):
                if patch.HasField(kind):
                    self._value(getattr(patch, kind))
            # A SEARCH text quotes the current text, and must stay exact.
            for block in patch.search_replace.blocks if patch.HasField("search_replace") else ():
                block.replace = self._replace(block.replace)
        return copy

    def _value(self, value: common_pb2.FieldValue) -> None:
        if value.HasField("string_value"):
            value.string_value = self._replace(value.string_value)
        elif value.HasField("int64_value"):
            # In a text field, the number becomes text.
            number = str(value.int64_value)
            if (text := self._replace(number)) != number:
                value.string_value = text
