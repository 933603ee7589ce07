"""Pages the diff of a commit, which may contain the texts of thousands of memories before and after."""

from typing import Final

from runekeep.v1 import session_service_pb2 as pb
from runekeep_server.protocol.answer_sizes import AnswerSizes
from runekeep_server.protocol.pagination import cut_page, open_page, refused_token
from runekeep_server.protocol.truncation import shorten
from runekeep_server.wire import sessions as wire
from runekeep_storage.records import Archive

_KINDS: Final = ("adds", "updates", "deletes")


def diff_page(
    request: pb.GetMemoryDiffRequest, user: str, archive: Archive, sizes: AnswerSizes
) -> pb.GetMemoryDiffResponse:
    """Returns a page of the changes of a finished archive. Slow for megabytes. Raises ApiError for a forged token."""
    page = open_page(request, (int,))
    first = int(page.after[0]) if page.after else 0
    diff = wire.memory_diff(user, archive)
    changes = [(kind, change) for kind in _KINDS for change in list(getattr(diff, kind))]
    if not 0 <= first <= len(changes):
        raise refused_token()
    # Without a page size, the caller gets the whole diff, as far as one answer holds it.
    most_rows, most_bytes = (page.size, sizes.page) if request.page_size else (len(changes), sizes.record)
    some = changes[first : first + most_rows + 1]
    for _, change in some:
        shorten(change, sizes.record)
    keys = [(first + number,) for number in range(1, len(some) + 1)]
    shown, token = cut_page(request, [change for _, change in some], keys, most_rows, most_bytes)
    answer = pb.GetMemoryDiffResponse(next_page_token=token)
    for kind in _KINDS:
        diff.ClearField(kind)
    answer.diff.CopyFrom(diff)
    for (kind, _), change in zip(some, shown, strict=False):
        getattr(answer.diff, kind).append(change)
    return answer
