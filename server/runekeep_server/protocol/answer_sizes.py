"""Maximum sizes of answers and of stored records. Whatever is stored must fit into an answer.

A page of a list ends after about `page` bytes. A record is one row of a list, one memory or one message. It is accepted
only if it fits into an answer together with everything around it. Records of earlier versions may be larger;
`runekeep_server.protocol.truncation` cuts and marks them.
"""

from dataclasses import dataclass
from typing import Final, Self

MAX_PAGE_BYTES: Final = 3 * 1024 * 1024
"""Maximum bytes of the rows of one page: a gRPC client accepts 4 MiB by default."""
MIN_SENT_BYTES: Final = 4 * 1024 * 1024
"""Answers may always be this large, however small the accepted requests are: every gRPC client accepts them, and some
answers have parts of a fixed size, such as 1 MiB of a document."""
MAX_RECORD_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of a record with its envelope. Fixed, so that clients, exports and imports know what any server
sends."""
ROW_OVERHEAD_BYTES: Final = 6
"""Bytes that a row adds to an answer besides itself: its tag and its length."""
_PAGE_ENVELOPE_BYTES: Final = 32 * 1024
_RECORD_ENVELOPE_BYTES: Final = 64 * 1024
"""Reserve for what surrounds a record in an answer: page token, revisions, scores, URIs."""


@dataclass(frozen=True, slots=True)
class AnswerSizes:
    """Size limits of one server, in bytes. `sent`: largest answer; `page`: rows of a page; `record`: largest record."""

    sent: int
    page: int
    record: int

    @classmethod
    def of(cls, max_message_bytes: int) -> Self:
        """Returns the limits for the setting `max_message_bytes`."""
        sent = max(max_message_bytes, MIN_SENT_BYTES)
        return cls(
            sent=sent,
            page=min(MAX_PAGE_BYTES, max_message_bytes - _PAGE_ENVELOPE_BYTES),
            record=min(sent, MAX_RECORD_BYTES) - _RECORD_ENVELOPE_BYTES,
        )

    @property
    def message(self) -> int:
        """Largest accepted message, in the form that GetJobInput returns, including whole tool outputs."""
        return self.record

    @property
    def memory(self) -> int:
        """Largest accepted memory, in the form that GetMemory returns, and largest file of a memory. Half of a record,
        because a change of a memory contains the files before and after it."""
        return self.record // 2 - 1024


DEFAULT_SIZES: Final = AnswerSizes.of(MIN_SENT_BYTES)
"""The limits of a server with the default settings."""
