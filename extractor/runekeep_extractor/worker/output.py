"""Converts an engine's output to messages of the Work stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runekeep.v1 import common_pb2, extractor_service_pb2
from runekeep_extractor.engine.interface import EngineOutput, JobFailed

# Bytes before an item: a tag byte, and a varint length of at most five bytes.
_ITEM_FRAME: Final = 6
# Bounds of the contract.
_MAX_CALLS: Final = 64
_ANSWER_BYTES: Final = 131_072
_ANSWERS_BYTES: Final = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class OutputMessages:
    """The messages that carry one output under its id. The output is the same however often, and in whatever chunks,
    it is sent.

    `counts`: operations that the worker adds; those that fit below the server's limit are sent after the engine's.
    `spent`: the attempt's cost up to this output; `calls`: its model calls; `traceparent`: its position in a trace.
    """

    lease: extractor_service_pb2.Lease
    output_id: str
    output: EngineOutput
    extractor: common_pb2.ExtractorInfo
    spent: Sequence[common_pb2.TokenUsage]
    calls: Sequence[common_pb2.ModelCall]
    traceparent: str = ""
    counts: Sequence[extractor_service_pb2.MemoryOperation] = ()

    def build(self, welcome: extractor_service_pb2.Welcome) -> list[extractor_service_pb2.WorkRequest]:
        """Returns all messages to send on a stream opened with this Welcome, from chunk 0 to JobComplete.

        Raises JobFailed if the output exceeds the server's limits.
        """
        if len(self.output.operations) > welcome.max_operations > 0:
            raise JobFailed(
                extractor_service_pb2.FAILURE_CLASS_INVALID_OUTPUT,
                f"the output has {len(self.output.operations)} operations; the server accepts {welcome.max_operations}",
            )
        room = welcome.max_operations - len(self.output.operations) if welcome.max_operations else len(self.counts)
        chunks = self._chunks(welcome.max_chunk_bytes, self.counts[:room])
        complete = extractor_service_pb2.JobComplete(
            lease=self.lease,
            output_id=self.output_id,
            chunk_count=len(chunks),
            usage=self.spent,
            extractor=self.extractor,
            dropped_items=self.output.dropped_items,
            duplicates=self.output.duplicates,
            skipped_rules=self.output.skipped_rules,
            model_calls=trim_calls(self.calls),
            traceparent=self.traceparent,
        )
        return [
            *(extractor_service_pb2.WorkRequest(output=chunk) for chunk in chunks),
            extractor_service_pb2.WorkRequest(complete=complete),
        ]

    def _chunks(
        self, max_bytes: int, counts: Sequence[extractor_service_pb2.MemoryOperation]
    ) -> list[extractor_service_pb2.OutputChunk]:
        chunks: list[extractor_service_pb2.OutputChunk] = []
        size = max_bytes + 1
        for item in self._items(counts):
            item_size = item.ByteSize() + _ITEM_FRAME
            if size + item_size > max_bytes:
                chunk = extractor_service_pb2.OutputChunk(lease=self.lease, output_id=self.output_id, index=len(chunks))
                size = chunk.ByteSize()
                chunks.append(chunk)
                if size + item_size > max_bytes:
                    raise JobFailed(
                        extractor_service_pb2.FAILURE_CLASS_INVALID_OUTPUT,
                        f"an item has {item_size} bytes; the server accepts {max_bytes} in a chunk",
                    )
            chunks[-1].items.append(item)
            size += item_size
        return chunks

    def _items(self, counts: Sequence[extractor_service_pb2.MemoryOperation]) -> list[extractor_service_pb2.OutputItem]:
        operations = [*self.output.operations, *counts]
        items = [extractor_service_pb2.OutputItem(operation=operation) for operation in operations]
        if self.output.summary is not None:
            items.append(extractor_service_pb2.OutputItem(summary=self.output.summary))
        described = self.output.image_descriptions
        items += [extractor_service_pb2.OutputItem(image_description=one) for one in described]
        items += [extractor_service_pb2.OutputItem(turn_memory=one) for one in self.output.turn_memories]
        if self.output.selection is not None:
            items.append(extractor_service_pb2.OutputItem(selection=self.output.selection))
        items += [extractor_service_pb2.OutputItem(feedback=one) for one in self.output.feedback]
        if self.output.bucket_changes is not None:
            items.append(extractor_service_pb2.OutputItem(bucket_changes=self.output.bucket_changes))
        if self.output.answer is not None:
            items.append(extractor_service_pb2.OutputItem(answer=self.output.answer))
        return items


def trim_calls(calls: Sequence[common_pb2.ModelCall]) -> list[common_pb2.ModelCall]:
    """Returns the newest calls, with their number and their answers cut to the contract's bounds."""
    kept: list[common_pb2.ModelCall] = []
    room = _ANSWERS_BYTES
    for call in reversed(calls[-_MAX_CALLS:]):
        trimmed = common_pb2.ModelCall()
        trimmed.CopyFrom(call)
        answer = call.answer.encode(errors="replace")[: min(room, _ANSWER_BYTES)]
        trimmed.answer = answer.decode(errors="ignore")
        room -= len(answer)
        kept.append(trimmed)
    return kept[::-1]


def failure_request(
    lease: extractor_service_pb2.Lease,
    failure: JobFailed,
    spent: Sequence[common_pb2.TokenUsage] = (),
    calls: Sequence[common_pb2.ModelCall] = (),
) -> extractor_service_pb2.WorkRequest:
    """Returns the JobFail message for a failure, with the attempt's cost and calls."""
    fail = extractor_service_pb2.JobFail(lease=lease, usage=spent, model_calls=trim_calls(calls))
    fail.failure.failure_class = failure.failure_class
    fail.failure.retryable = failure.retryable
    fail.failure.status.code = _status_code(failure)
    fail.failure.status.message = failure.message
    fail.failure.waiting_for = failure.waiting_for
    if failure.retry_after is not None:
        fail.failure.retry_after.FromNanoseconds(int(failure.retry_after * 1e9))
    return extractor_service_pb2.WorkRequest(fail=fail)


def _status_code(failure: JobFailed) -> int:
    from grpc import StatusCode

    codes = {
        extractor_service_pb2.FAILURE_CLASS_RATE_LIMITED: StatusCode.RESOURCE_EXHAUSTED,
        extractor_service_pb2.FAILURE_CLASS_MODEL_UNAVAILABLE: StatusCode.UNAVAILABLE,
        extractor_service_pb2.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE: StatusCode.UNAVAILABLE,
        extractor_service_pb2.FAILURE_CLASS_TIME_BUDGET: StatusCode.DEADLINE_EXCEEDED,
        extractor_service_pb2.FAILURE_CLASS_OUT_OF_BUDGET: StatusCode.RESOURCE_EXHAUSTED,
        extractor_service_pb2.FAILURE_CLASS_INTERNAL: StatusCode.INTERNAL,
        extractor_service_pb2.FAILURE_CLASS_UNSUPPORTED: StatusCode.UNIMPLEMENTED,
        extractor_service_pb2.FAILURE_CLASS_INPUT_INVALID: StatusCode.INVALID_ARGUMENT,
        extractor_service_pb2.FAILURE_CLASS_INPUT_TOO_LARGE: StatusCode.INVALID_ARGUMENT,
    }
    code: int = codes.get(failure.failure_class, StatusCode.FAILED_PRECONDITION).value[0]
    return code
