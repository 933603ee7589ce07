"""The tree of a space as it is read, listed, matched and searched: by small steps and as of every revision."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas.turns.buckets import Bucket, bucket_id
from runekeep_server.memories.tree import directories, grep, listing, walk
from runekeep_server.memories.tree.globs import Glob
from runekeep_server.memories.tree.lines import pattern_of
from runekeep_server.memories.tree.names import VIEWS
from runekeep_server.memories.tree.walk import Walk
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.pagination import next_token
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Space, Tx
from runekeep_storage.erasure.deletion import delete_user
from runekeep_storage.errors import NotFound
from runekeep_storage.memories import apply, memories
from runekeep_storage.records import STORED_OUTPUT, Message
from runekeep_storage.turns import buckets
from tests.support.appending import add_messages
from tests.support.changes import change, put, remove
from tests.support.storage.databases import ANN, BOB, CAT, ON_SQLITE, Clock, claim, commit, prepared, talk
from tests.support.storage.search import Search
from tests.support.storage.trees import Tree, at_revision, at_time

pytestmark = pytest.mark.postgres_long

ROOT = "viking://user/ann"
TOPICS = (
    "a", "a b", "a-b", "a.b", "a0", "A", "été", "[x]*", "x\ny", "l\u2028s", "?", "漢字", "-", "!a", "a/b", "~",
    "\U0010fffd",
)  # fmt: skip
DIFF = json.dumps(
    {"extractor": {}, "operations": {"adds": [{"uri": "u", "after": "a needle"}], "updates": [], "deletes": []}}
)
PEERS = ("", "bob", "bob-2", "bob.x", "z")


@pytest.fixture
def tree(search: Search, tmp_path: Path) -> Tree:
    return Tree(search.database, search.registry, search.relay, FolderBlobs(tmp_path / "blobs"), ANN)


@pytest.fixture(params=[2, pytest.param(7, marks=pytest.mark.long)])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every batch and slice holds few, so that what lies on their borders is met."""
    for module, names in (
        (walk, ("BATCH", "_SESSIONS", "_ARCHIVES")),
        (listing, ("SLICE",)),
        (grep, ("SLICE_DOCUMENTS", "SLICE_STEPS", "SLICE_LINES")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, request.param)
    monkeypatch.setattr(grep, "MAX_DOCUMENTS", request.param + 2)
    return int(request.param)


async def random_change(random: Random, tree: Tree, alive: dict[str, int]) -> list[pb.MemoryMutation]:
    """Changes of memories that differ, kept up in `alive`: versions by URI."""
    changes: dict[str, pb.MemoryMutation] = {}
    for _ in range(random.randint(1, 5)):
        topic, peer = random.choice(TOPICS), random.choice(PEERS)
        kind = random.choice(("preferences", "entities", "tools"))
        fields = {
            "preferences": {"topic": topic, "content": f"text {random.random()}\nsecond {topic} line"},
            "entities": {"entity_name": topic, "entity_type": "thing", "content": f"text {random.random()}"},
            "tools": {"tool_name": topic, "total_calls": random.randint(1, 9)},
        }[kind]
        made = put(kind, 0, peer=peer, **fields)
        uri = random.choice(list(alive)) if alive and random.random() < 0.5 else ""
        if uri and uri not in changes:
            if random.random() < 0.5:
                changes[uri] = remove(uri, alive[uri])
            else:
                changes[uri] = change(uri, alive[uri], abstract=f"about {random.random()}")
        elif (key := f"{kind}/{topic}/{peer}") not in changes:
            changes[key] = made
    return list(changes.values())


@pytest.mark.parametrize("seed", range(3))
async def test_as_of_a_revision_everything_reads_as_it_did_when_that_was_the_newest(
    tree: Tree, clock: Clock, small: int, seed: int
) -> None:
    random = Random(seed)
    seen = []
    while len(seen) < 6:
        clock.advance(random.choice([0, 1]))
        alive = {one.uri: one.version for one in (await tree.listing()).entries if not one.directory}
        try:
            answer = await tree.write(*await random_change(random, tree, alive))
        except ApiError as error:
            # One that is there already was made anew, or named twice.
            assert error.code.name in ("ABORTED", "INVALID_ARGUMENT")
            continue
        if answer.revision == len(seen) + 1:
            seen.append((clock.now, await tree.everything()))
    newest_at = {time: number for number, (time, _) in enumerate(seen, 1)}
    for number, (time, then) in enumerate(seen, 1):
        assert await tree.everything(as_of=at_revision(number)) == then
        assert await tree.everything(as_of=at_time(time)) == seen[newest_at[time] - 1][1]
    assert await tree.everything() == seen[-1][1]
    assert {one.uri for one in (await tree.listing(as_of=at_time(1))).entries} == {
        f"{ROOT}/{place}" for place in ("memories", "peers", "sessions", "skills")
    }


@ON_SQLITE
async def test_a_revision_that_was_never_made_is_refused(tree: Tree) -> None:
    await tree.write(put("preferences", topic="Tea", content="Green."))
    uri = f"{ROOT}/memories/preferences/Tea.md"
    for asked in (
        tree.get(uri, as_of=at_revision(2)),
        tree.read(uri, as_of=at_revision(2)),
        tree.listing(as_of=at_revision(2)),
        tree.glob("**", as_of=at_revision(2)),
        tree.grep("x", as_of=at_revision(2)),
    ):
        with pytest.raises(ApiError) as refused:
            await asked
        assert refused.value.code.name == "INVALID_ARGUMENT"
        assert [one.field for one in refused.value.field_violations] == ["as_of.revision"]
    with pytest.raises(ApiError) as refused:
        await tree.get(uri, version=1, as_of=at_revision(1))
    assert [one.field for one in refused.value.field_violations] == ["as_of"]
    with pytest.raises(NotFound):
        await tree.get(uri, as_of=at_time(1))


async def test_a_time_is_that_of_the_newest_revision_whatever_the_clock_did(tree: Tree, clock: Clock) -> None:
    times = []
    for number, seconds in enumerate((0, 10, -5, 20)):
        clock.advance(seconds)
        times.append(clock.now)
        await tree.write(put("preferences", number, topic="Tea", content=f"number {number + 1}"))
    uri = f"{ROOT}/memories/preferences/Tea.md"

    async def at(time: int) -> str:
        return (await tree.get(uri, as_of=at_time(time))).content

    # The third one was made at an earlier time than the second.
    assert [await at(time) for time in times] == ["number 1", "number 3", "number 3", "number 4"]
    assert await at(times[2] - 1) == "number 1"


async def test_after_a_deletion_of_the_user_its_revisions_are_empty(tree: Tree, clock: Clock) -> None:
    await tree.write(put("preferences", topic="Tea", content="Green."))
    before = clock.now
    clock.advance(1)
    await tree.database.write(delete_user, ANN, "test")
    await tree.write(put("preferences", topic="Music", content="Jazz."))
    assert not (await tree.listing(f"{ROOT}/memories", as_of=at_revision(1))).entries
    assert not (await tree.listing(f"{ROOT}/memories", as_of=at_revision(2))).entries
    assert not (await tree.listing(f"{ROOT}/memories", as_of=at_time(before))).entries
    named = [one.name for one in (await tree.listing(f"{ROOT}/memories", as_of=at_revision(3))).entries]
    assert "Music.md" in named


# Sessions beside memories


async def fill(tree: Tree) -> None:
    """Memories, sessions with archives that are finished and one that is not, outputs of tools, buckets; and of
    others."""
    for topic in TOPICS[:9]:
        await tree.write(put("preferences", topic=topic, content=f"I like {topic}\nneedle one\nand more"))
    await tree.write(put("entities", peer="bob", entity_name="Rex", entity_type="dog", content="a needle"))
    await tree.write(put("entities", peer="bob-2", entity_name="Rex", entity_type="dog", content="a Needle"))
    database = tree.database
    for name in ("s", "s-1", "s.1", "t"):
        for number in range(3 if name == "s" else 1):
            await talk(database, ANN, name, f"first of {name}", "a needle in it\nand a second line", "third")
            task = f"{name}-{number}"
            await commit(database, ANN, name, task)
            job = await claim(database)
            await database.write(apply.apply, ANN, replace(prepared(job.lease, [], task), diff=DIFF))
        await talk(database, ANN, name, *(f"live {number}: {'needle' if number % 3 else 'hay'}" for number in range(9)))
    await commit(database, ANN, "t", "t-open", keep_recent=2)
    for number, tool in enumerate(("call-1", "call:2", "call.3")):
        blob = tree.blobs.put(ANN, f"output {number}\nwith a needle\n".encode())
        await database.write_global(_keep, tool, blob)
    for name in ("s", "t"):
        for theme in ("needle", "Trip", "Office"):
            bucket = Bucket(bucket_id(theme), theme, f"a {theme}", objective_text="objective")
            kept = await buckets.keep(database, tree.blobs, ANN, bucket)
            await database.write(buckets.write, ANN, name, bucket, kept.blob, kept.hosted_uri, base="")
    for space in (BOB, CAT):
        await talk(database, space, "s", "a needle of somebody else")


async def _keep(tx: Tx, tool: str, blob: str) -> None:
    part = {
        "type": "tool", "tool_id": tool, "tool_name": "x", "skill_name": "", "input": {}, "output": "",
        "status": "completed", "duration_ms": 0, "total_tokens": 0, STORED_OUTPUT: blob, "stored_output_length": 28,
    }  # fmt: skip
    await add_messages(tx, ANN, "t", [Message(f"of {tool}", "assistant", (part,))], {tool: (blob, 28)})


@ON_SQLITE
async def test_a_walk_goes_on_behind_any_document(tree: Tree, small: int) -> None:
    await fill(tree)

    async def steps(tx: Tx, space: Space, wanted: Walk) -> list[str]:
        return [step.entry.uri async for step in walk.walk(tx, space, wanted)]

    for root in (ROOT, f"{ROOT}/memories", f"{ROOT}/peers", f"{ROOT}/sessions", f"{ROOT}/sessions/s/history"):
        everything = await tree.database.read(steps, ANN, Walk(root, hidden=True))
        assert len(everything) == len(set(everything))
        names = {one.uri for one in (await tree.listing(root, show_hidden=True)).entries}
        assert names == set(everything)
        documents = [uri for uri in everything if not any(other.startswith(f"{uri}/") for other in everything)]
        for uri in documents:
            behind = await tree.database.read(steps, ANN, Walk(root, hidden=True, after=uri))
            assert behind == everything[everything.index(uri) + 1 :]


@ON_SQLITE
async def test_a_depth_and_a_limit_cut_the_same_tree(tree: Tree, small: int) -> None:
    await fill(tree)
    for root in ("", f"{ROOT}/memories", f"{ROOT}/sessions", f"{ROOT}/sessions/t", f"{ROOT}/peers"):
        for hidden in (False, True):
            everything = list((await tree.listing(root, show_hidden=hidden)).entries)
            for depth in (1, 2, 3):
                expected = [one for one in everything if one.depth <= depth]
                answer = await tree.listing(root, show_hidden=hidden, depth=depth)
                assert list(answer.entries) == expected and not answer.truncated
                cut = await tree.listing(root, show_hidden=hidden, depth=depth, node_limit=3)
                assert list(cut.entries) == expected[:3] and cut.truncated == (len(expected) > 3)


@ON_SQLITE
async def test_a_pattern_finds_what_the_whole_list_holds(tree: Tree, small: int) -> None:
    await fill(tree)
    for root in (ROOT, f"{ROOT}/memories/preferences", f"{ROOT}/sessions"):
        entries = (await tree.listing(root, show_hidden=True)).entries
        for pattern in (
            "**",
            "*",
            "**/*.md",
            "*/*",
            "sessions/*/history/**/messages.jsonl",
            "**/[[]*",
            "s*/**",
            "**/.*",
        ):
            glob = Glob(pattern)
            expected = [one.uri for one in entries if glob.matches(tuple(one.uri.removeprefix(f"{root}/").split("/")))]
            answer = await tree.glob(pattern, uri=root)
            assert [one.uri for one in answer.entries] == expected and not answer.truncated
            cut = await tree.glob(pattern, uri=root, node_limit=2)
            assert [one.uri for one in cut.entries] == expected[:2] and cut.truncated == (len(expected) > 2)
            visible = await tree.glob(pattern, uri=root, show_hidden=False)
            assert [one.uri for one in visible.entries] == [
                uri for uri in expected if not uri.rpartition("/")[2].startswith(".")
            ]


@pytest.mark.parametrize(("pattern", "options"), [("needle", {}), ("n.*e$", {"regex": True, "ignore_case": True})])
async def test_every_line_is_found_once_in_the_order_of_the_tree(
    tree: Tree, small: int, pattern: str, options: dict[str, bool]
) -> None:
    await fill(tree)
    wanted = pattern_of(pattern, regex="regex" in options, ignore_case="ignore_case" in options)
    documents = await tree.documents()
    expected = [
        (uri, number, line)
        for uri, text in documents.items()
        if not uri.endswith("/tool.json")
        for number, line in enumerate(text.split("\n"))
        if wanted.place(line, lambda: None) >= 0
    ]
    assert len(expected) > 20
    texts = {uri: text.split("\n") for uri, text in documents.items()}
    for limit in (1, 2, 1000):
        pages = [page async for page in tree.pages(pattern, limit=limit, context_lines=limit % 3, **options)]
        found = [match for page in pages for match in page.matches]
        assert [(one.uri, one.line, one.text) for one in found] == expected
        assert all(len(page.matches) <= limit for page in pages)
        for match in found:
            lines, at, around = texts[match.uri], match.line, limit % 3
            assert list(match.before) == lines[max(at - around, 0) : at]
            assert list(match.after) == lines[at + 1 : at + 1 + around]


async def test_a_search_is_confined_to_a_place_a_document_and_a_pattern(tree: Tree, small: int) -> None:
    await fill(tree)

    async def found(**fields: object) -> set[str]:
        return {one.uri.removeprefix(f"{ROOT}/") for one in await tree.grep("needle", **fields)}

    everywhere = await found()
    assert {one.partition("/")[0] for one in everywhere} == {*VIEWS, "memories", "peers", "sessions"}
    for place in (
        "memories",
        "sessions",
        "sessions/s",
        "sessions/s/history",
        "sessions/t/tools",
        "sessions/t/buckets",
        "peers/bob",
    ):
        assert await found(uri=f"{ROOT}/{place}") == {one for one in everywhere if one.startswith(f"{place}/")}
    for document in ("sessions/t/messages.jsonl", "sessions/t/tools/call-1/output.txt", "memories/preferences/a.md"):
        assert await found(uri=f"{ROOT}/{document}") == {document}
    # Named itself, it is looked through.
    assert await found(uri=f"{ROOT}/sessions/t/tools/call-1/tool.json") == {"sessions/t/tools/call-1/tool.json"}
    logs = {one for one in everywhere if one.endswith("messages.jsonl")}
    assert await found(glob="**/messages.jsonl") == logs
    assert await found(uri=f"{ROOT}/sessions", glob="*/messages.jsonl") == {one for one in logs if "history" not in one}
    for missing in (
        "sessions/none",
        "sessions/t/none.md",
        "memories/none",
        "memories/none.md",
        "memories/a/.abstract.md",
    ):
        with pytest.raises(NotFound):
            await found(uri=f"{ROOT}/{missing}")
    with pytest.raises(ApiError):
        await found(uri=f"{ROOT}/sessions/t/messages.jsonl", glob="**")


async def test_pages_are_of_one_revision(tree: Tree) -> None:
    for topic in "abcd":
        await tree.write(put("preferences", topic=topic, content="a needle"))
    pages = tree.pages("needle", uri=f"{ROOT}/memories", show_hidden=False, limit=1)
    first = await anext(pages)
    await tree.write(
        put("preferences", topic="b2", content="a new needle"), remove(f"{ROOT}/memories/preferences/c.md", 1)
    )
    found = [first.matches[0].uri] + [match.uri async for page in pages for match in page.matches]
    assert [uri.rpartition("/")[2] for uri in found] == ["a.md", "b.md", "c.md", "d.md"]


async def test_a_call_reads_a_bounded_amount(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for topic in "abcdef":
        await tree.write(put("preferences", topic=topic, content="x" * 1000))
    monkeypatch.setattr(grep, "MAX_CHARACTERS", 2500)
    pages = [page async for page in tree.pages("needle", uri=f"{ROOT}/memories/preferences", show_hidden=False)]
    assert [page.documents for page in pages] == [3, 3, 0] and not any(page.matches for page in pages)


@ON_SQLITE
async def test_a_token_that_was_made_up_is_refused(tree: Tree) -> None:
    await tree.write(put("preferences", topic="a", content="a needle"))
    request = pb.GrepDocumentsRequest(pattern="needle", uri=f"{ROOT}/memories")
    for key in (
        (1, "viking://user/bob/memories/x.md", -1), (1, f"{ROOT}/sessions/s/messages.jsonl", 0), (-1, ROOT, 0),
        (1, f"{ROOT}/memories/../x", 0), (1, f"{ROOT}/memories/x.md", -3), (1, 2, 3), (1,),
    ):  # fmt: skip
        request.page_token = next_token(request, key)
        with pytest.raises(ApiError) as refused:
            await grep.grep(tree.store, ANN, request)
        assert refused.value.field_violations[0].field == "page_token"
    for path in ("sessions", "sessions/s/history", "sessions/s/history/x/y", "sessions/s/tools", "sessions/s/q/r/z/z"):
        request = pb.GrepDocumentsRequest(pattern="needle")
        request.page_token = next_token(request, (1, f"{ROOT}/{path}", -1))
        await grep.grep(tree.store, ANN, request)


# Large directories


async def test_a_large_directory_is_told_without_reading_all_of_it(
    tree: Tree, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its newest memories and its most used ones, wherever their names stand, and as it was in the past too."""
    monkeypatch.setattr(walk, "BATCH", 10)
    monkeypatch.setattr(directories, "WEIGHED", 20)
    monkeypatch.setattr(directories, "COUNTED", 40)
    monkeypatch.setattr(directories, "CHILDREN", 2)
    for start in range(0, 60, 20):
        clock.advance(1)
        await tree.write(
            *(put("preferences", topic=f"t{number:02}", content="x") for number in range(start, start + 20)),
            put("entities", entity_name=f"e{start}", entity_type="x", content="x"),
            put("cases", case_name=f"c{start}", problem="p", solution="s", content="x"),
        )
    clock.advance(1)
    before = (await tree.write(put("preferences", topic="newest", content="Of late."))).revision
    clock.advance(1)
    await tree.write(
        put("preferences", topic="often", content="Of use."), put("preferences", topic="gone", content="x")
    )
    clock.advance(1)
    await tree.write(put("preferences", topic="a new one", content="Now."))
    for name, uses in (("t33", 7), ("often", 9), ("gone", 99)):
        await used(tree, f"{ROOT}/memories/preferences/{name}.md", uses)
    await tree.write(remove(f"{ROOT}/memories/preferences/gone.md", 1))
    read = 0
    whole = memories.listing

    async def listed(*arguments: object, **options: object) -> object:
        nonlocal read
        found = await whole(*arguments, **options)  # type: ignore[arg-type]
        read += len(found)
        return found

    monkeypatch.setattr(memories, "listing", listed)
    entries = {one.name: one for one in (await tree.listing(f"{ROOT}/memories", depth=1)).entries}
    said = "more than 40 memories: a new one: Now; often: Of use; t33: x; newest: Of late; "
    assert entries["preferences"].abstract.startswith(said)
    assert entries["entities"].abstract == "3 memories: e40: x; e20: x; e0: x"
    assert entries["preferences"].update_time.ToNanoseconds() > entries["entities"].update_time.ToNanoseconds()
    assert read <= 80
    read = 0
    overview = await tree.read(f"{ROOT}/memories/preferences/.overview.md")
    first, last = overview.split("\n")[:4], overview.split("\n")[-1]
    assert first == ["- a new one: Now.", "- often: Of use.", "- t33: x", "- newest: Of late."]
    assert last == "- and more" and "gone" not in overview
    assert await tree.read(f"{ROOT}/memories/.overview.md") == (
        "- cases/: 3 memories: c40: x; c20: x; c0: x\n- entities/: 3 memories: e40: x; e20: x; e0: x\n- and more"
    ), "of the third directory it only says that it is there"
    assert read <= 42, "the rest comes by index"
    assert (await tree.read(f"{ROOT}/memories/.abstract.md")).startswith(said)

    monkeypatch.setattr(directories, "WEIGHED_IN_THE_PAST", 30)
    past = await tree.read(f"{ROOT}/memories/preferences/.overview.md", as_of=at_revision(before))
    assert past.startswith("- newest: Of late.\n- t") and past.endswith("\n- and more") and "often" not in past

    read = 0
    cut = await tree.listing(f"{ROOT}/memories/preferences", node_limit=5)
    assert len(cut.entries) == 5 and cut.truncated and read <= 10


async def used(tree: Tree, uri: str, uses: int) -> None:
    async def work(tx: Tx) -> None:
        await tx.execute(
            "INSERT INTO active_counts (account, user_id, uri, uses) VALUES ($1, $2, $3, $4)",
            tree.space.account,
            tree.space.user,
            uri,
            uses,
        )

    await tree.database.write_global(work)
