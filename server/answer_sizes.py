"""How large answers may be, and with them what is accepted: whatever is stored must fit into an answer.

A page of a list ends after about `page` bytes. A record is one row of a list, one memory or one message: it is accepted
only if it fits into an answer together with everything that comes back around it. Records of earlier versions may be
larger; `server.shortening` cuts them, and says so in them.
"""

from dataclasses import dataclass
from typing import Final, Self

MAX_PAGE_BYTES: Final = 3 * 1024 * 1024
"""Bytes of the rows of one page: a gRPC client takes 4 MiB by default."""
MIN_SENT_BYTES: Final = 4 * 1024 * 1024
"""Answers may always be this large, however small the requests are that a server takes: every gRPC client takes them,
and some answers have parts of a fixed size, such as 1 MiB of a document."""
MAX_RECORD_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a record with its envelope. Fixed, so that clients, exports and imports know what any server sends."""
ROW_OVERHEAD_BYTES: Final = 6
"""Bytes of a row in an answer beside the row itself: its tag and its length."""
_PAGE_ENVELOPE_BYTES: Final = 32 * 1024
_RECORD_ENVELOPE_BYTES: Final = 64 * 1024
"""For what comes back around a record: page token, revisions, scores, URIs of the answer."""


@dataclass(frozen=True, slots=True)
class AnswerSizes:
    """Bounds of one server, in bytes. `sent`: largest answer; `page`: rows of a page; `record`: largest record."""

    sent: int
    page: int
    record: int

    @classmethod
    def of(cls, max_message_bytes: int) -> Self:
        """`max_message_bytes`: the setting."""
        sent = max(max_message_bytes, MIN_SENT_BYTES)
        return cls(
            sent=sent,
            page=min(MAX_PAGE_BYTES, max_message_bytes - _PAGE_ENVELOPE_BYTES),
            record=min(sent, MAX_RECORD_BYTES) - _RECORD_ENVELOPE_BYTES,
        )

    @property
    def message(self) -> int:
        """Largest message that is accepted, as GetJobInput returns it, whole outputs of tools included."""
        return self.record

    @property
    def memory(self) -> int:
        """Largest memory that is accepted, as GetMemory returns it, and largest file of one: a change of a memory holds
        the files before and after it."""
        return self.record // 2 - 1024


DEFAULT_SIZES: Final = AnswerSizes.of(MIN_SENT_BYTES)
"""Those of a server with the default settings."""
