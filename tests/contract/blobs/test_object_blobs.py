"""What blobs are, wherever they are kept: in a folder, in obstore's own store, and in S3 as a double speaks it."""

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import LocalStore

from runekeep_schemas.type_files.registry import Registry
from runekeep_storage import deadline
from runekeep_storage.blobs import object_blobs, sweeps
from runekeep_storage.blobs.blobs import GRACE_SECONDS, Blobs, FolderBlobs, digest_of
from runekeep_storage.blobs.object_blobs import RETRIES, ObjectBlobs
from runekeep_storage.database import Database, Space
from runekeep_storage.erasure.cleanup import Cleaner
from runekeep_storage.erasure.deletion import delete_session, delete_user
from runekeep_storage.errors import DeadlinePassed, NotFound, StoreUnavailable
from runekeep_storage.records import STORED_OUTPUT, Message
from runekeep_storage.sessions import sessions
from runekeep_storage.store import Store, StoreOptions
from tests.doubles import s3_server
from tests.doubles.s3_server import Fault, S3Double
from tests.support.appending import add_messages
from tests.support.storage.databases import ANN, BOB, CAT
from tests.support.storage.deletions import dump

pytestmark = pytest.mark.postgres_long

URL = f"s3://{s3_server.BUCKET}/of/runekeep"
ANNA = Space(ANN.account, f"{ANN.user}a")
"""Her name begins as another one's."""
MANY = 7
"""More than two pages of the double's lists."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Blobs of one kind. `age`: as if all that are there had been put longer ago than the grace; `count`: how many."""

    blobs: Blobs
    age: Callable[[], None]
    count: Callable[[], int]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Double]:
    with s3_server.running() as double:
        variables = {
            "AWS_ENDPOINT_URL": double.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": "nowhere",
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield double


@pytest.fixture(params=["folder", "local", "s3"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    if request.param == "s3":
        double: S3Double = request.getfixturevalue("s3")
        return Kept(ObjectBlobs.at(URL), lambda: double.age(GRACE_SECONDS + 60), lambda: len(double.objects))

    root = tmp_path / "blobs"

    def files() -> list[Path]:
        return [path for path in root.rglob("*") if path.is_file()]

    def age() -> None:
        for path in files():
            at = path.stat().st_mtime - GRACE_SECONDS - 60
            os.utime(path, (at, at))

    blobs: Blobs = (
        FolderBlobs(root)
        if request.param == "folder"
        else ObjectBlobs(LocalStore(root, mkdir=True), "file:///somewhere/")
    )
    return Kept(blobs, age, lambda: len(files()))


# Of every kind


@pytest.mark.parametrize("data", [b"", b"a large output", os.urandom(6 * 1024 * 1024)], ids=["none", "some", "much"])
def test_what_is_put_is_what_is_read(kept: Kept, data: bytes) -> None:
    name = kept.blobs.put(ANN, data)

    assert kept.blobs.get(ANN, name) == data


def test_the_same_data_put_again_soon_is_one_blob(kept: Kept) -> None:
    """A call that is repeated leaves nothing behind."""
    name = kept.blobs.put(ANN, b"data")

    assert kept.blobs.put(ANN, b"data") == name
    assert kept.count() == 1
    assert digest_of(kept.blobs.put(ANN, b"other data")) != digest_of(name)


def test_no_space_reaches_a_blob_of_another(kept: Kept) -> None:
    name = kept.blobs.put(ANN, b"a secret")

    for space in (BOB, CAT, ANNA, Space("other", "ann")):
        with pytest.raises(NotFound):
            kept.blobs.get(space, name)
        assert kept.blobs.names(space) == (set(), set())
        kept.blobs.put(space, b"a secret")
    kept.age()
    assert kept.count() == 5
    kept.blobs.remove(ANNA, *kept.blobs.names(ANNA)[0])
    assert kept.count() == 4 and kept.blobs.get(ANN, name) == b"a secret"


def test_names_are_told_apart_by_age(kept: Kept) -> None:
    old = {kept.blobs.put(ANN, b"old %d" % number) for number in range(MANY)}
    kept.age()
    young = {kept.blobs.put(ANN, b"young %d" % number) for number in range(MANY)}

    assert kept.blobs.names(ANN) == (old, young)
    assert kept.blobs.names(BOB) == (set(), set())


def test_a_blob_that_was_put_a_short_while_ago_is_not_taken_away(kept: Kept) -> None:
    name = kept.blobs.put(ANN, b"data")
    kept.blobs.remove(ANN, name)
    assert kept.blobs.get(ANN, name) == b"data"

    kept.age()
    kept.blobs.remove(ANN, name)
    with pytest.raises(NotFound):
        kept.blobs.get(ANN, name)
    assert kept.count() == 0
    kept.blobs.remove(ANN, name)


def test_what_is_put_again_when_it_is_old_outlives_the_removal_of_what_was_there(kept: Kept) -> None:
    first = kept.blobs.put(ANN, b"data")
    kept.age()
    second = kept.blobs.put(ANN, b"data")

    assert digest_of(first) == digest_of(second)
    for name in (first, second):
        kept.blobs.remove(ANN, name)
    assert kept.blobs.get(ANN, second) == b"data"
    assert kept.count() == 1


@pytest.mark.parametrize("name", ["0" * 64, f"{'0' * 64}-{'1' * 32}"])
def test_a_blob_that_is_not_there_is_not_found(kept: Kept, name: str) -> None:
    # Without any blob a folder may be a volume that is not mounted.
    kept.blobs.put(ANN, b"another")
    with pytest.raises(NotFound, match="no blob named 0000"):
        kept.blobs.get(ANN, name)


async def keep_output(database: Database, blobs: Blobs, space: Space, session_id: str, data: str) -> str:
    """A message whose tool output is kept apart; sent again it is the same message."""
    name = await asyncio.to_thread(blobs.put, space, data.encode())
    await database.write(sessions.get_or_create, space, session_id)
    part = {"type": "tool", "tool_id": data, "tool_name": "t", "output": "", STORED_OUTPUT: name}
    message = Message(f"m-{data}", "assistant", (part,))
    await database.write(add_messages, space, session_id, [message], {data: (name, len(data))})
    return name


async def test_they_leave_with_the_last_row_that_names_them(database: Database, kept: Kept) -> None:
    cleaner = Cleaner(database, kept.blobs)
    for space in (ANN, BOB):
        for number in range(MANY):
            await keep_output(database, kept.blobs, space, "gone", f"of the session {number}")
        await keep_output(database, kept.blobs, space, "gone", "of both")
        await keep_output(database, kept.blobs, space, "kept", "of both")
    kept.age()

    await database.write(delete_session, ANN, "gone", "")
    await cleaner.clean()
    (left,) = kept.blobs.names(ANN)[0]
    assert await asyncio.to_thread(kept.blobs.get, ANN, left) == b"of both"

    await database.write(delete_user, ANN, "")
    await cleaner.clean()
    assert kept.blobs.names(ANN) == (set(), set())
    assert len(kept.blobs.names(BOB)[0]) == kept.count() > MANY
    assert await database.read_global(sweeps.waiting) is None


async def test_a_message_that_is_sent_again_later_is_the_same_message(database: Database, kept: Kept) -> None:
    """Its output may be another blob by then."""
    await keep_output(database, kept.blobs, ANN, "s", "data")
    kept.age()
    await keep_output(database, kept.blobs, ANN, "s", "data")
    kept.age()

    found = await database.read(sessions.messages_between, ANN, "s", 1, 10)
    output = await database.read(sessions.tool_output, ANN, "s", "data")
    await database.write(sweeps.ask, ANN)
    await Cleaner(database, kept.blobs).clean()

    assert len(found) == 1 and output is not None
    for name in (found[0].parts[0][STORED_OUTPUT], output[0]):
        assert await asyncio.to_thread(kept.blobs.get, ANN, name) == b"data"


def test_where_a_blob_lies_is_told(kept: Kept) -> None:
    name = kept.blobs.put(ANN, b"data")
    uri = kept.blobs.uri(ANN, name)

    if isinstance(kept.blobs, FolderBlobs):
        assert uri == f"blob:{name}"
    else:
        digest, _, rest = name.partition("-")
        assert uri in {f"{url}/acme/ann/{digest}/{rest}" for url in (URL, "file:///somewhere")}


# Of objects


def test_an_object_that_is_put_while_it_is_removed_is_there_afterwards(
    s3: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at an old one's age and its removal."""
    blobs = ObjectBlobs.at(URL)
    first = blobs.put(ANN, b"data")
    s3.age(GRACE_SECONDS + 60)
    names: list[str] = []
    delete = obstore.delete

    def put_before(*args: Any) -> Any:
        names.append(blobs.put(ANN, b"data"))
        return delete(*args)

    monkeypatch.setattr(obstore, "delete", put_before)
    blobs.remove(ANN, first)

    (second,) = names
    assert second != first and blobs.get(ANN, second) == b"data"
    with pytest.raises(NotFound):
        blobs.get(ANN, first)


def test_lists_are_read_to_the_last_page(s3: S3Double) -> None:
    blobs = ObjectBlobs.at(URL)
    names = {blobs.put(ANN, b"%d" % number) for number in range(MANY)}
    s3.asked.clear()

    assert blobs.names(ANN) == (set(), names)
    assert len(s3.asked) == 3 and all("list-type=2" in one for one in s3.asked)


def test_a_probe_leaves_nothing_behind(kept: Kept) -> None:
    kept.blobs.put(ANN, b"data")
    kept.blobs.probe()

    assert kept.count() == 1


CALLS: dict[str, Callable[[ObjectBlobs, str], Any]] = {
    "put": lambda blobs, name: blobs.put(ANN, b"more data"),
    "get": lambda blobs, name: blobs.get(ANN, name),
    "names": lambda blobs, name: blobs.names(ANN),
    "remove": lambda blobs, name: blobs.remove(ANN, name),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_is_busy_for_a_moment_is_asked_again(s3: S3Double, call: str) -> None:
    blobs = ObjectBlobs.at(URL)
    name = blobs.put(ANN, b"data")
    s3.age(GRACE_SECONDS + 60)
    s3.asked.clear()
    s3.faults.extend([Fault.BUSY] * 2)

    CALLS[call](blobs, name)

    assert not s3.faults and len(s3.asked) >= 3


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_stays_busy_is_unavailable(s3: S3Double, call: str) -> None:
    """After a bounded number of tries, of which the error says nothing of the data."""
    blobs = ObjectBlobs.at(URL, in_all=timedelta(seconds=60))
    name = blobs.put(ANN, b"data")
    s3.asked.clear()
    s3.faults.extend([Fault.BUSY] * 1000)

    with pytest.raises(StoreUnavailable, match="503") as raised:
        CALLS[call](blobs, name)

    assert len(s3.asked) == RETRIES + 1
    assert "\n" not in str(raised.value) and "more data" not in str(raised.value)


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_never_answers_is_unavailable(s3: S3Double, call: str) -> None:
    moment = timedelta(milliseconds=500)
    blobs = ObjectBlobs.at(URL, request=moment, in_all=moment)
    # Without the deadlines under test.
    name = ObjectBlobs.at(URL).put(ANN, b"data")
    s3.asked.clear()
    s3.faults.extend([Fault.HANG] * 1000)

    # In a thread: no timeout of a test reaches into the client, and a test that fails must not hang.
    thread = ThreadPoolExecutor(1)
    answer = thread.submit(CALLS[call], blobs, name)
    thread.shutdown(wait=False)

    with pytest.raises(StoreUnavailable):
        answer.result(timeout=60)
    assert s3.hung.wait(30)
    assert len(s3.asked) == 1, "when the first try is over, so is the time for further ones"

    s3.faults.clear()
    assert ObjectBlobs.at(URL).get(ANN, name) == b"data"


@pytest.mark.parametrize("call", ["put", "get"])
async def test_a_store_that_never_answers_keeps_no_thread_longer_than_its_call(s3: S3Double, call: str) -> None:
    blobs = ObjectBlobs.at(URL, request=timedelta(seconds=60), in_all=timedelta(seconds=60))
    name = await asyncio.to_thread(blobs.put, ANN, b"data")
    s3.faults.extend([Fault.HANG] * 1000)
    deadline.begin(1.0)

    async with asyncio.timeout(20):
        with pytest.raises(DeadlinePassed):
            await asyncio.to_thread(CALLS[call], blobs, name)
    assert s3.hung.wait(30), "it was asked"


def test_a_probe_of_a_store_that_never_answers_ends_long_before_a_request_would(
    s3: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_blobs, "PROBE_SECONDS", 1.0)
    blobs = ObjectBlobs.at(URL, request=timedelta(seconds=60), in_all=timedelta(seconds=60))
    s3.faults.extend([Fault.HANG] * 1000)
    thread = ThreadPoolExecutor(1)
    answer = thread.submit(blobs.probe)
    thread.shutdown(wait=False)

    with pytest.raises(StoreUnavailable, match="did not answer within"):
        answer.result(timeout=20)
    assert s3.hung.wait(30), "it was asked"


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_nobody_runs_is_unavailable(s3: S3Double, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = ObjectBlobs.at(URL).put(ANN, b"data")
    s3.stop()
    blobs = ObjectBlobs.at(URL)

    with pytest.raises(StoreUnavailable):
        CALLS[call](blobs, name)


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_refuses_is_not_asked_again(s3: S3Double, call: str) -> None:
    blobs = ObjectBlobs.at(URL)
    name = blobs.put(ANN, b"data")
    s3.asked.clear()
    s3.faults.append(Fault.DENIED)

    with pytest.raises(StoreUnavailable):
        CALLS[call](blobs, name)
    assert len(s3.asked) == 1


def test_a_blob_whose_writing_was_not_confirmed_is_written_once(s3: S3Double) -> None:
    blobs = ObjectBlobs.at(URL)
    # The first request is the look for a young one.
    s3.faults.extend([Fault.BUSY, Fault.DONE_UNTOLD, Fault.DONE_UNTOLD])

    name = blobs.put(ANN, b"data")

    assert blobs.get(ANN, name) == b"data"
    assert len(s3.objects) == 1 and not s3.faults


def test_a_blob_that_came_in_half_is_not_taken_for_the_whole(s3: S3Double) -> None:
    blobs = ObjectBlobs.at(URL)
    data = os.urandom(300_000)
    name = blobs.put(ANN, data)
    s3.faults.append(Fault.CUT)

    try:
        found = blobs.get(ANN, name)
    except StoreUnavailable:
        found = blobs.get(ANN, name)

    assert found == data and not s3.faults


async def test_a_sweep_that_the_store_fails_keeps_no_other_waiting(
    database: Database, s3: S3Double, capfd: pytest.CaptureFixture[str]
) -> None:
    blobs = ObjectBlobs.at(URL)
    for space in (ANN, BOB):
        await keep_output(database, blobs, space, "s", "data")
        await database.write(delete_user, space, "")
    s3.age(GRACE_SECONDS + 60)
    s3.faults.append(Fault.DENIED)

    await Cleaner(database, blobs).clean()

    assert len(s3.objects) == 1
    waits = [space for space in (ANN, BOB) if "blob_sweeps" in await dump(database, space)]
    assert len(waits) == 1 and blobs.names(waits[0])[0]
    assert "blobs_not_removed" in capfd.readouterr().out


@pytest.mark.parametrize(
    "url",
    [
        "memory:///", "file:///tmp", "http://127.0.0.1/dav", "ftp://bucket/prefix", "not a url",
        "s3://key:secret@bucket/prefix", "s3://bucket/prefix?key=secret",
    ],
)  # fmt: skip
def test_what_is_no_object_store_is_refused(url: str) -> None:
    with pytest.raises(ValueError) as raised:
        ObjectBlobs.at(url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("url", ["gs://bucket/prefix", "az://container/prefix", "s3a://bucket"])
def test_the_kin_of_s3_are_known(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "any")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "YW55")

    assert ObjectBlobs.at(url).uri(ANN, "d-1") == f"{url}/acme/ann/d/1"


def test_a_store_keeps_its_blobs_where_its_url_says(tmp_path: Path, s3: S3Double) -> None:
    store = Store(StoreOptions(tmp_path / "data", embedder="none", blob_url=URL), Registry.load())

    name = store.blobs.put(ANN, b"data")

    digest, _, rest = name.partition("-")
    assert list(s3.objects) == [f"of/runekeep/acme/ann/{digest}/{rest}"]


def test_a_mark_is_kept_beside_the_blobs_and_is_none(kept: Kept) -> None:
    assert kept.blobs.read_mark() == ""
    name = kept.blobs.put(ANN, b"tea")
    for text in ("first, and longer", "second"):
        kept.blobs.write_mark(text)
        assert kept.blobs.read_mark() == text

    old, young = kept.blobs.names(ANN)
    assert (old, young) == (set(), {name}) and kept.blobs.size(ANN) == 3
    assert kept.blobs.place
