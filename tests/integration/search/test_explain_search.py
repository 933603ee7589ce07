"""Why a memory or a message is, or is not, among the results of a search, over the wire."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import common_pb2, space_service_pb2
from runekeep.v1 import memory_service_pb2 as pb
from tests.support.callers import Caller, said
from tests.support.changes import put, remove, written
from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.postgres_long

IMAGE = common_pb2.Message(
    id="image",
    role=common_pb2.ROLE_USER,
    parts=[common_pb2.Part(image=common_pb2.ImagePart(url="https://example.com/i.png"))],
)


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    return either_store


class Search:
    """A search of the caller, and what becomes of one document in it."""

    def __init__(self, caller: Caller, **fields: Any) -> None:
        self._caller = caller
        self._request = pb.FindMemoriesRequest(**fields)

    async def explain(self, uri: str, message_id: str = "", **fields: Any) -> pb.ExplainSearchResponse:
        search = pb.FindMemoriesRequest()
        search.CopyFrom(self._request)
        search.MergeFrom(pb.FindMemoriesRequest(**fields))
        request = pb.ExplainSearchRequest(search=search, uri=uri, message_id=message_id)
        answer: pb.ExplainSearchResponse = await self._caller.memories.ExplainSearch(request)
        return answer

    async def outcome(self, uri: str, message_id: str = "", **fields: Any) -> tuple[str, list[str]]:
        answer = await self.explain(uri, message_id, **fields)
        name = pb.SearchOutcome.Name(answer.outcome).removeprefix("SEARCH_OUTCOME_")
        return name, list(answer.excluded_by)


def tea(number: int) -> pb.MemoryMutation:
    return put("preferences", topic=f"Tea {number}", content="Likes green tea." + " And more." * number)


async def test_places_and_scores_are_those_of_the_search(caller: Caller) -> None:
    await written(caller, *map(tea, range(5)))
    await caller.searchable()
    found = (await caller.find("green tea", limit=5, explain=True)).results
    search = Search(caller, query="green tea", limit=2)
    for place, item in enumerate(found, 1):
        why = await search.explain(item.memory.uri)
        assert (why.rank, why.candidates) == (place, 5)
        assert why.document.score == pytest.approx(item.score)
        assert why.document.detail.sparse_score == pytest.approx(item.detail.sparse_score, rel=1e-3)
        assert list(why.document.detail.parts) == list(item.detail.parts)
        assert why.last.memory.uri == found[1].memory.uri
        assert (why.outcome, list(why.excluded_by)) == (
            (pb.SEARCH_OUTCOME_RETURNED, []) if place <= 2 else (pb.SEARCH_OUTCOME_OVER_LIMIT, ["limit"])
        )
    low = found[-1].memory.uri
    assert await search.outcome(low, score_threshold=found[0].score + 1) == ("BELOW_MINIMUM", ["score_threshold"])
    # It shares no word with the query, and there is no embedder.
    assert await search.outcome(low, query="zeppelin") == ("NO_MATCH", [])


async def test_every_filter_that_excludes_it_is_named(caller: Caller) -> None:
    session = await caller.session(session_id="talk")
    await caller.add(session, said("green tea for two", id="m1"))
    await caller.commit(session)
    written_tea = await written(caller, tea(1))
    uri = written_tea.memories[0].uri
    await caller.searchable()
    tomorrow = Timestamp(seconds=written_tea.memories[0].update_time.seconds + 86_400)
    search = Search(caller, query="green tea", limit=5)
    for name, value in {
        "memory_types": ["events"],
        "kinds": [pb.FOUND_KIND_PASSAGE],
        "peers": ["kim"],
        "tags": ["drinks"],
        "sessions": ["talk"],
        "start_time": tomorrow,
        "end_time": Timestamp(seconds=1),
        "target_uri": caller.uri("memories/events"),
        "filter": {"topic": common_pb2.FieldValue(string_value="Coffee")},
        "as_of": common_pb2.AsOf(time=Timestamp(seconds=1)),
    }.items():
        assert await search.outcome(uri, **{name: value}) == ("FILTERED", [name])
    both = await search.explain(uri, memory_types=["events"], tags=["drinks"])
    assert list(both.excluded_by) == ["memory_types", "tags"]
    # Without these filters it would have a score and a place.
    assert both.document.score > 0
    assert (both.rank, both.candidates, both.HasField("last")) == (1, 0, False)

    talk = caller.uri("sessions/talk")
    assert await search.outcome(talk, "m1") == ("RETURNED", [])
    assert await search.outcome(talk, "m1", memory_types=["preferences"]) == ("FILTERED", ["memory_types"])
    assert await search.outcome(talk, "m1", as_of=common_pb2.AsOf(time=Timestamp(seconds=1))) == (
        "FILTERED",
        ["as_of"],
    )


async def test_what_no_search_finds(caller: Caller) -> None:
    made = await written(caller, tea(1), tea(2))
    gone = made.memories[1].uri
    await written(caller, remove(gone, 1))
    session = await caller.session(session_id="talk")
    await caller.add(session, said("green tea for two", id="old"), IMAGE, said("green tea", id="gone"))
    await caller.commit(session)
    await caller.add(session, said("green tea for three", id="live"))
    await caller.searchable()
    request = space_service_pb2.EraseDataRequest(
        messages=space_service_pb2.MessageSet(session="talk", message_ids=["gone"])
    )
    await caller.spaces.EraseData(request)

    search = Search(caller, query="green tea")
    assert await search.outcome(caller.uri("memories/preferences/None.md")) == ("NOT_FOUND", [])
    assert await search.outcome(gone) == ("DELETED", [])
    # At the revision before, it was there.
    assert await search.outcome(gone, as_of=common_pb2.AsOf(revision=made.revision)) == ("RETURNED", [])
    talk = caller.uri("sessions/talk")
    assert await search.outcome(talk, "none") == ("NOT_FOUND", [])
    assert await search.outcome(talk, "live") == ("NOT_ARCHIVED", [])
    assert await search.outcome(talk, "image") == ("NOT_SEARCHABLE", [])
    assert await search.outcome(talk, "gone") == ("NOT_SEARCHABLE", [])
    assert await search.outcome(talk, "old") == ("RETURNED", [])
    for uri, message_id in ((talk, ""), (made.memories[0].uri, "old"), ("viking://user/kim/memories/profile.md", "")):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await search.outcome(uri, message_id)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


MINILM = {"RUNEKEEP_EMBEDDER": "minilm"}
TEA, WHEELS = "memories/preferences/Tea.md", "memories/preferences/Wheels.md"


@pytest.fixture
async def by_meaning(
    own_server: Callable[..., ServerProcess], request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Caller, Search]]:
    """A caller of a server with an embedder and the settings of the test, and a search with two results."""
    async with grpc.aio.insecure_channel(own_server(MINILM | request.param).address) as channel:
        caller = Caller(channel, "ann")
        await written(
            caller,
            put("preferences", topic="Tea", content="Likes green tea."),
            put("preferences", topic="Coffee", content="Drinks coffee at breakfast."),
            put("preferences", topic="Wheels", content="Rides a bicycle with wide tyres."),
        )
        await caller.searchable()
        yield caller, Search(caller, query="hot beverages", limit=2)


@pytest.mark.parametrize("by_meaning", [{"RUNEKEEP_SEARCH__CANDIDATES": "2"}], indirect=True)
async def test_the_score_of_what_is_no_candidate(by_meaning: tuple[Caller, Search]) -> None:
    caller, search = by_meaning
    wheels = await search.explain(caller.uri(WHEELS))
    assert (wheels.outcome, wheels.rank, wheels.candidates) == (pb.SEARCH_OUTCOME_NOT_A_CANDIDATE, 0, 2)
    assert 0 < wheels.document.score < wheels.last.score
    assert (wheels.document.detail.dense_rank, wheels.without_vector) == (0, False)


@pytest.mark.parametrize("by_meaning", [{}], indirect=True)
async def test_a_relevance_that_is_too_low(by_meaning: tuple[Caller, Search]) -> None:
    caller, search = by_meaning
    wheels = await search.explain(caller.uri(WHEELS))
    assert (wheels.outcome, wheels.rank) == (pb.SEARCH_OUTCOME_OVER_LIMIT, 3)
    assert 0 < wheels.document.relevance < wheels.last.relevance < 1
    assert await search.outcome(caller.uri(TEA)) == ("RETURNED", [])
    assert await search.outcome(caller.uri(TEA), min_relevance=0.999) == ("BELOW_MINIMUM", ["min_relevance"])
