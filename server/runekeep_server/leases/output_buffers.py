"""Buffers outputs while they arrive. They are only in memory: a worker keeps its output until the verdict and can send
it again."""

from dataclasses import dataclass, field

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import turn_memory_service_pb2 as turn_pb
from runekeep_server.protocol.errors import protocol_violation

MAX_CHUNK_BYTES = 256 * 1024
MAX_CHUNK_REQUEST_BYTES = MAX_CHUNK_BYTES + 1024
MAX_OPERATIONS = 2000
MAX_OUTPUT_BYTES = 32 * 1024 * 1024


def check_size(chunk: pb.OutputChunk) -> None:
    """Raises ApiError PROTOCOL_VIOLATION for a chunk that is too large. Checked first, because even validating a chunk
    that is too large is slow."""
    if chunk.ByteSize() > MAX_CHUNK_REQUEST_BYTES:
        raise protocol_violation("A chunk exceeds Welcome.max_chunk_bytes", "Send smaller chunks")


@dataclass(slots=True)
class OutputBuffer:
    """The received part of one output."""

    output_id: str
    next_index: int = 0
    size: int = 0
    operations: list[pb.MemoryOperation] = field(default_factory=list)
    image_descriptions: list[pb.ImageDescription] = field(default_factory=list)
    turn_memories: list[pb.TurnMemory] = field(default_factory=list)
    bucket_changes: list[pb.BucketChanges] = field(default_factory=list)
    selections: list[turn_pb.TurnSelection] = field(default_factory=list)
    feedback: list[turn_pb.Feedback] = field(default_factory=list)
    answers: list[pb.Answer] = field(default_factory=list)
    summary: common_pb2.Summary = field(default_factory=common_pb2.Summary)

    def add(self, chunk: pb.OutputChunk) -> None:
        """Adds a chunk. Raises ApiError PROTOCOL_VIOLATION for a chunk that leaves a gap, and for an output that is too
        large."""
        if chunk.index < self.next_index:
            return
        if chunk.index > self.next_index:
            raise protocol_violation(
                f"Chunk {chunk.index} came before chunk {self.next_index}", "Send the chunks of an output in order"
            )
        for item in chunk.items:
            match item.WhichOneof("item"):
                case "summary":
                    self.summary = item.summary
                case "image_description":
                    self.image_descriptions.append(item.image_description)
                case "turn_memory":
                    self.turn_memories.append(item.turn_memory)
                case "bucket_changes":
                    self.bucket_changes.append(item.bucket_changes)
                case "selection":
                    self.selections.append(item.selection)
                case "feedback":
                    self.feedback.append(item.feedback)
                case "answer":
                    self.answers.append(item.answer)
                case _:
                    self.operations.append(item.operation)
        self.size += chunk.ByteSize()
        turn_items = len(self.turn_memories) + len(self.bucket_changes) + len(self.selections) + len(self.feedback)
        items = max(len(self.operations), len(self.image_descriptions), turn_items, len(self.answers))
        if items > MAX_OPERATIONS or self.size > MAX_OUTPUT_BYTES:
            raise protocol_violation(
                "An output has more operations, or more items of another kind, than Welcome.max_operations, or more"
                f" than {MAX_OUTPUT_BYTES} bytes",
                "Send fewer",
            )
        self.next_index += 1
