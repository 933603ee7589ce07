"""Tests what every vector index must do, with each engine of `conftest.py`."""

import math
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from uuid import uuid4

import pytest

from runekeep_storage.embedders.vectors import to_bytes
from runekeep_storage.index.base import (
    SPARSE_ONLY,
    Hit,
    IndexHits,
    IndexMismatch,
    IndexQuery,
    IndexUnavailable,
    PointKind,
    VectorIndex,
    VectorSpace,
)
from runekeep_storage.index.sparse import encode_document, encode_query
from runekeep_storage.search.ranking import Words
from tests.support.storage.index_points import EAST, NORTH, SERVER_URL, SOUTH, SPACE, Maker, ask, ids, opened, point


@pytest.fixture
async def index(make: Maker) -> AsyncIterator[VectorIndex]:
    async with opened(make()) as made:
        yield made


def test_the_suite_met_a_real_server() -> None:
    if SERVER_URL is None:
        pytest.skip("THE INDEX WAS NOT TESTED AGAINST A REAL QDRANT SERVER, only against a double: set QDRANT_URL")


async def test_finds_by_meaning_and_by_words(index: VectorIndex) -> None:
    near, far, wordy = point("green tea", dense=NORTH), point("coffee", dense=SOUTH), point("black tea", dense=EAST)
    await index.upsert([near, far, wordy])

    dense, sparse = ids(await index.query(ask("coffee", dense=NORTH)))

    assert dense == [near.id, wordy.id, far.id]
    assert sparse == [far.id]


async def test_a_hit_carries_what_callers_join_and_smooth_by(index: VectorIndex) -> None:
    said = replace(
        point('green "tea", [milk]\n茶', dense=None),
        kind=PointKind.PASSAGE,
        uri="viking://user/ann/sessions/t,1/history/archive_001/messages.jsonl",
        version=2,
        order=3,
        session="t,1",
        sequence=12,
        sources=("t,1",),
        time=1_683_500_000,
        fact=-1,
    )
    noted = replace(point("tea"), uri='viking://user/ann/memories/茶/"pot".md', sources=("s1", "s2"), fact=3)
    await index.upsert([said, noted])

    hits = {hit.id: hit for hit in (await index.query(ask("tea kettle milk 茶"))).sparse}

    for one in (said, noted):
        held = dict(zip(one.sparse.indices, one.sparse.values, strict=True))
        asked = encode_query("tea kettle milk 茶").indices
        assert hits[one.id] == Hit(
            id=one.id,
            score=hits[one.id].score,
            kind=one.kind,
            uri=one.uri,
            version=one.version,
            order=one.order,
            session=one.session,
            sequence=one.sequence,
            sources=one.sources,
            time=one.time,
            fact=one.fact,
            words=pytest.approx(tuple(held.get(index, 0.0) for index in asked)),
        )
        assert hits[one.id].score > 0
    assert [sum(map(bool, hits[one.id].words)) for one in (said, noted)] == [3, 1]
    (near,) = (await index.query(ask(dense=NORTH))).dense
    assert near == hits[noted.id]._replace(score=near.score, words=()), "the other leg needs no words"


async def test_users_never_see_each_other(index: VectorIndex) -> None:
    own, other_user = point("tea"), point("tea", user="bob")
    other_account = replace(point("tea"), account="umbrella")
    await index.upsert([own, other_user, other_account])

    assert ids(await index.query(ask("tea", dense=NORTH))) == ([own.id], [own.id])
    assert ids(await index.query(ask("tea", user="bob", dense=NORTH))) == ([other_user.id], [other_user.id])
    assert await index.list_ids("umbrella", "ann") == [other_account.id]
    assert await index.count("acme", "ann") == 1
    assert await index.count_all() == 3


async def test_another_users_words_do_not_change_scores(index: VectorIndex) -> None:
    await index.upsert([point("green tea"), point("black coffee")])
    before = (await index.query(ask("green tea"))).sparse

    await index.upsert([point("tea", user="bob") for _ in range(20)])

    assert (await index.query(ask("green tea"))).sparse == before


async def test_rare_words_weigh_more_than_common_ones(index: VectorIndex) -> None:
    """The scores give search the IDF of each word, counted in the space of the caller alone."""
    common = [point("kettle boils"), *(point("kettle and kettle") for _ in range(8))]
    rare = point("samovar boils")
    await index.upsert([*common, rare, *(point("samovar", user="bob") for _ in range(20))])

    found = (await index.query(ask("kettle samovar"))).sparse

    assert found[0].id == rare.id
    holding = [sum(bool(hit.words[place]) for hit in found) for place in (0, 1)]
    assert sorted(holding) == [1, 9]
    expected = [math.log(1 + (10 - count + 0.5) / (count + 0.5)) for count in holding]
    assert Words(found).idf == pytest.approx(expected, rel=1e-5)


async def test_equal_scores_are_ordered_by_id(index: VectorIndex) -> None:
    same = [point("tea", number=number) for number in (5, 2**127, 3, 4)]
    await index.upsert(same)

    expected = sorted(one.id for one in same)
    assert ids(await index.query(ask("tea", dense=NORTH))) == (expected, expected)


async def test_the_limit_holds_for_each_leg(index: VectorIndex) -> None:
    await index.upsert([point("tea") for _ in range(5)])

    hits = await index.query(replace(ask("tea", dense=NORTH), limit_per_leg=3))

    assert (len(hits.dense), len(hits.sparse)) == (3, 3)


async def test_writing_again_replaces(index: VectorIndex) -> None:
    first = replace(point("tea"), tags=("hot",))
    await index.upsert([first])
    await index.upsert([first])
    await index.upsert([replace(first, version=2, sparse=encode_document("coffee"), tags=())])

    assert await index.count("acme", "ann") == 1
    assert (await index.query(ask("tea"))).sparse == ()
    (hit,) = (await index.query(ask("coffee"))).sparse
    assert hit.version == 2
    assert (await index.query(replace(ask("coffee"), tags=("hot",)))).sparse == ()


async def test_a_replaced_point_may_lose_its_dense_vector(index: VectorIndex) -> None:
    first = point("tea", dense=NORTH)
    await index.upsert([first])
    await index.upsert([replace(first, dense=None)])

    assert ids(await index.query(ask("tea", dense=NORTH))) == ([], [first.id])


async def test_the_later_of_two_points_with_one_id_stands(index: VectorIndex) -> None:
    first = point("tea")
    await index.upsert([first, replace(first, version=2)])

    assert [hit.version for hit in (await index.query(ask("tea"))).sparse] == [2]


HOME = "viking://user/ann"
FILTERS: dict[str, tuple[Callable[[IndexQuery], IndexQuery], set[str]]] = {
    "nothing": (lambda query: query, {"tea", "event", "peer", "talk"}),
    "kind": (lambda query: replace(query, kinds=(PointKind.PASSAGE,)), {"talk"}),
    "both kinds": (
        lambda query: replace(query, kinds=(PointKind.PASSAGE, PointKind.MEMORY)),
        {"tea", "event", "peer", "talk"},
    ),
    "types": (lambda query: replace(query, memory_types=("events", "preferences")), {"tea", "event", "peer"}),
    "one type": (lambda query: replace(query, memory_types=("events",)), {"event"}),
    "directory": (lambda query: replace(query, uri_prefix=f"{HOME}/memories"), {"tea", "event"}),
    "directory with a slash": (lambda query: replace(query, uri_prefix=f"{HOME}/memories/events/"), {"event"}),
    "the thing itself": (lambda query: replace(query, uri_prefix=f"{HOME}/memories/events/picnic.md"), {"event"}),
    "half a name": (lambda query: replace(query, uri_prefix=f"{HOME}/mem"), set()),
    "self": (lambda query: replace(query, peers=(None,)), {"tea", "event", "talk"}),
    "a peer": (lambda query: replace(query, peers=("kim",)), {"peer"}),
    "self or a peer": (lambda query: replace(query, peers=(None, "kim")), {"tea", "event", "peer", "talk"}),
    "session": (lambda query: replace(query, sessions=("s1", "s2")), {"talk"}),
    "tag": (lambda query: replace(query, tags=("outdoors",)), {"event", "talk"}),
    "all tags": (lambda query: replace(query, tags=("outdoors", "summer")), {"event"}),
    "since": (lambda query: replace(query, since=200), {"event", "talk"}),
    "until": (lambda query: replace(query, until=200), {"tea"}),
    "since and until": (lambda query: replace(query, since=200, until=300), {"event"}),
    "two filters": (lambda query: replace(query, tags=("outdoors",), kinds=(PointKind.MEMORY,)), {"event"}),
}


@pytest.mark.parametrize("name", FILTERS)
async def test_filters_hold_on_both_legs(index: VectorIndex, name: str) -> None:
    base = point("tea")
    stored = {
        "tea": replace(base, memory_type="preferences", time=100),
        "event": replace(
            base,
            uri=f"{HOME}/memories/events/picnic.md",
            memory_type="events",
            time=200,
            tags=("outdoors", "summer"),
        ),
        "peer": replace(
            base, uri=f"{HOME}/peers/kim/memories/preferences/tea.md", memory_type="preferences", peer="kim"
        ),
        "talk": replace(
            base,
            kind=PointKind.PASSAGE,
            uri=f"{HOME}/sessions/s1/history/archive_001/messages.jsonl",
            session="s1",
            sequence=4,
            sources=("s1",),
            time=300,
            tags=("outdoors",),
        ),
    }
    named = {key: replace(one, id=str(uuid4())) for key, one in stored.items()}
    await index.upsert([*named.values(), point("tea", user="bob")])
    narrow, expected = FILTERS[name]

    dense, sparse = ids(await index.query(narrow(ask("tea", dense=NORTH))))

    assert set(dense) == set(sparse) == {named[key].id for key in expected}


async def test_nothing_to_search_by_finds_nothing(index: VectorIndex) -> None:
    await index.upsert([point("tea")])

    assert await index.query(ask("")) == IndexHits()
    assert await index.query(ask("what is it?")) == IndexHits()


async def test_deleting(index: VectorIndex) -> None:
    gone, kept = point("tea"), point("tea")
    await index.upsert([gone, kept])

    await index.delete([gone.id, str(uuid4())])
    await index.delete([])

    assert await index.list_ids("acme", "ann") == [kept.id]


async def test_deleting_a_space_leaves_the_others(index: VectorIndex) -> None:
    kept = point("tea", user="bob")
    await index.upsert([point("tea"), point("coffee"), kept])

    await index.delete_space("acme", "ann")

    assert await index.count("acme", "ann") == 0
    assert await index.list_ids("acme", "bob") == [kept.id]


async def test_ids_are_listed_in_pages(index: VectorIndex) -> None:
    stored = sorted((point("tea") for _ in range(7)), key=lambda one: one.id)
    last = point("tea", number=2**128 - 1)
    await index.upsert([*stored, last, point("tea", user="bob")])

    listed: list[str] = []
    while page := await index.list_ids("acme", "ann", after=listed[-1] if listed else None, limit=3):
        assert len(page) <= 3
        listed += page

    assert listed == [*(one.id for one in stored), last.id]


async def test_a_vector_of_the_wrong_length_is_refused_with_its_batch(index: VectorIndex) -> None:
    with pytest.raises(ValueError, match="4 numbers"):
        await index.upsert([point("tea"), point("tea", dense=to_bytes([1, 0]))])
    with pytest.raises(ValueError, match="4 numbers"):
        await index.query(ask(dense=to_bytes([1, 0])))

    assert await index.count_all() == 0


@pytest.mark.parametrize("asked", [VectorSpace("another-model", 4), VectorSpace("four-numbers", 8), SPARSE_ONLY])
async def test_an_index_of_other_vectors_is_refused_until_it_is_cleared(make: Maker, asked: VectorSpace) -> None:
    async with opened(make()) as index:
        await index.upsert([point("tea")])

    late = make()
    try:
        with pytest.raises(IndexMismatch, match=r"four-numbers.*dimension 4.*runekeep index rebuild") as caught:
            await late.open(asked)
        assert repr(asked.model) in str(caught.value)
        with pytest.raises(IndexUnavailable):
            await late.count_all()

        await late.clear()
        await late.open(asked)
        assert await late.count_all() == 0
        await late.upsert([point("tea", dense=None)])
    finally:
        await late.close()
    async with opened(make(), asked) as index:
        assert len((await index.query(ask("tea"))).sparse) == 1


async def test_clearing_what_was_never_made(make: Maker) -> None:
    index = make()
    try:
        await index.clear()
        await index.open(SPACE)
        assert await index.count_all() == 0
    finally:
        await index.close()


async def test_an_index_without_dense_vectors(make: Maker) -> None:
    async with opened(make(), SPARSE_ONLY) as index:
        stored = point("tea", dense=None)
        await index.upsert([stored])

        assert ids(await index.query(ask("tea"))) == ([], [stored.id])
        with pytest.raises(ValueError, match="0 numbers"):
            await index.query(ask("tea", dense=NORTH))


async def test_points_outlive_the_server(make: Maker) -> None:
    stored = point("tea")
    async with opened(make()) as index:
        await index.upsert([stored])
        await index.flush()

    async with opened(make()) as index:
        assert ids(await index.query(ask("tea", dense=NORTH))) == ([stored.id], [stored.id])


async def test_opening_twice_keeps_the_points(index: VectorIndex) -> None:
    await index.upsert([point("tea")])
    await index.open(SPACE)

    assert await index.count_all() == 1


async def test_an_index_keeps_its_id_until_it_is_gone(make: Maker) -> None:
    async with opened(make()) as index:
        id = await index.open(SPACE)
        assert int(id, 16) >= 0
    async with opened(make()) as index:
        assert await index.open(SPACE) == id
        await index.clear()
        anew = await index.open(SPACE)
        assert int(anew, 16) >= 0 and anew != id


async def test_an_index_that_is_not_open_says_so(make: Maker) -> None:
    index = make()
    try:
        for call in (index.query(ask("tea")), index.upsert([point("tea")]), index.count("acme", "ann")):
            with pytest.raises(IndexUnavailable, match="not open"):
                await call
        assert not await index.healthy()
    finally:
        await index.close()


async def test_an_open_index_is_healthy(index: VectorIndex) -> None:
    assert await index.healthy()


@pytest.mark.parametrize(("account", "user"), [("", "ann"), ("acme", ""), ("acme\x1fann", "x"), ("acme", "a\x1fb")])
def test_no_query_and_no_point_without_a_tenant(account: str, user: str) -> None:
    with pytest.raises(ValueError, match="not a valid"):
        IndexQuery(account=account, user=user)
    with pytest.raises(ValueError, match="not a valid"):
        replace(point("tea"), account=account, user=user)


async def test_a_mark_is_kept_beside_the_points_and_never_found(make: Maker) -> None:
    early = make()
    try:
        # Without an index, nothing is stored.
        await early.write_mark("too early")
        assert await early.read_mark() == ""
    finally:
        await early.close()
    async with opened(make()) as index:
        assert await index.read_mark() == ""
        stored = point("tea")
        await index.upsert([stored])
        for text in ("first, and longer", "second"):
            await index.write_mark(text)
            assert await index.read_mark() == text
        assert await index.count_all() == 1
        assert ids(await index.query(ask("tea", dense=NORTH))) == ([stored.id], [stored.id])
        assert await index.list_ids("acme", "ann") == [stored.id]

    # It can be read before the index is opened.
    late = make()
    try:
        assert await late.read_mark() == "second"
        assert late.place
    finally:
        await late.close()


async def test_while_the_embedder_is_changed_points_have_vectors_of_both(make: Maker) -> None:
    other = VectorSpace("three-numbers", 3)
    up, aside = to_bytes([0, 0, 1]), to_bytes([0, 1, 0])
    before = point("green tea", dense=NORTH, number=1)
    both = replace(point("black tea", dense=EAST, number=2), model=SPACE.model, other=(other.model, up))
    index = make()
    id = await index.open(SPACE)
    await index.upsert([before])
    assert await index.open(SPACE, other) == id
    await index.upsert([both])

    async def found(vector: bytes, model: str) -> list[str]:
        return ids(await index.query(replace(ask(dense=vector), model=model)))[0]

    assert await found(NORTH, SPACE.model) == [before.id, both.id]
    assert await found(up, other.model) == [both.id], "the other point has no vector of that model"
    with pytest.raises(IndexUnavailable):
        await index.query(replace(ask(dense=NORTH), model="unknown"))
    with pytest.raises(ValueError, match="3 numbers"):
        await index.upsert([replace(both, other=(other.model, NORTH))])
    await index.upsert([replace(both, other=None)])
    assert await found(up, other.model) == [], "a point is replaced with all its vectors"
    await index.upsert([replace(before, model=SPACE.model, other=(other.model, aside)), both])
    await index.close()

    index = make()
    assert await index.open(other, SPACE) == id, "either may come first"
    assert await found(up, "") == [both.id, before.id]
    assert await index.open(other) == id
    await index.drop_vectors(SPACE.model)
    await index.drop_vectors(SPACE.model)
    assert await found(up, other.model) == [both.id, before.id]
    with pytest.raises(IndexMismatch):
        await index.open(SPACE)
    await index.close()

    index = make()
    assert await index.open(other) == id, "what is left is recorded"
    assert await found(aside, other.model) == [before.id, both.id]
    await index.close()
