"""The diff of a commit, in pages: it may hold the texts before and after of thousands of memories."""

from typing import Final

from runekeep.v1 import session_service_pb2 as pb
from server.answer_sizes import AnswerSizes
from server.pages import cut_page, open_page, refused_token
from server.shortening import shorten
from server.wire import sessions as wire
from storage.records import Archive

_KINDS: Final = ("adds", "updates", "deletes")


def diff_page(
    request: pb.GetMemoryDiffRequest, user: str, archive: Archive, sizes: AnswerSizes
) -> pb.GetMemoryDiffResponse:
    """A page of the changes of a finished archive. Takes time for megabytes. Raises ApiError for a forged token."""
    page = open_page(request, (int,))
    first = int(page.after[0]) if page.after else 0
    diff = wire.memory_diff(user, archive)
    changes = [(kind, change) for kind in _KINDS for change in list(getattr(diff, kind))]
    if not 0 <= first <= len(changes):
        raise refused_token()
    # Who asks for no pages wants the whole diff, as far as any answer goes.
    most_rows, most_bytes = (request.page_size, sizes.page) if request.page_size else (len(changes), sizes.record)
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
