"""Buckets: rows with cards, blobs with the whole, and that neither a change nor a blob is lost between the two."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runekeep_schemas.turns.buckets import CARD_SIGNALS, Bucket, Slice, WeightedSignal, bucket_id, card
from runekeep_schemas.turns.fingerprint import Signal
from runekeep_schemas.turns.stored import BUCKET, bucket_tag
from runekeep_storage.blobs import sweeps
from runekeep_storage.blobs.blobs import GRACE_SECONDS, FolderBlobs
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.erasure.cleanup import Cleaner
from runekeep_storage.erasure.deletion import delete_session
from runekeep_storage.errors import NotFound, StoreUnavailable, VersionConflict
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import pending_deletions
from runekeep_storage.turns import artifacts, buckets
from runekeep_storage.turns.buckets import Stored
from tests.support.storage.databases import ANN, BOB, SECOND, Clock, talk
from tests.support.storage.deletions import OTHERS

pytestmark = pytest.mark.postgres_long


class Kept(FolderBlobs):
    """Blobs that can be aged and counted."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._at = root

    def files(self) -> list[Path]:
        return [path for path in self._at.rglob("*") if path.is_file()]

    def age(self) -> None:
        for path in self.files():
            at = path.stat().st_mtime - GRACE_SECONDS - 60
            os.utime(path, (at, at))


@pytest.fixture
def blobs(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "blobs")


def bucket(name: str, *, at: int = 1, slices: int = 3, signals: int = CARD_SIGNALS + 2) -> Bucket:
    """With more than its card holds."""
    facts = tuple(
        WeightedSignal(Signal(f"k{number}", number, "medium"), 0.5, number, (f"t{number}",))
        for number in range(signals)
    )
    timeline = tuple(Slice(number * SECOND, number * SECOND, f"hint {number}", facts=facts) for number in range(slices))
    return Bucket(bucket_id(name), name, f"about {name}", ("topic",), "objective", True, timeline, at * SECOND)


async def write(
    database: Database, blobs: FolderBlobs, wanted: Bucket, *, base: str = "", space: Space = ANN, session: str = "s"
) -> Stored:
    kept = await buckets.keep(database, blobs, space, wanted)
    await database.write(buckets.write, space, session, wanted, kept.blob, kept.hosted_uri, base=base)
    return kept


async def cards(tx: Tx, space: Space, session_id: str) -> list[Bucket]:
    return [Bucket.from_text(row.text) for row in await buckets.rows(tx, space, session_id)]


async def names(database: Database, blobs: FolderBlobs, space: Space = ANN, session: str = "s") -> list[str]:
    return [one.bucket.name for one in await buckets.load(database, blobs, space, session)]


async def test_the_whole_is_read_from_blobs_and_cards_from_rows(database: Database, blobs: Kept) -> None:
    await talk(database, ANN, "s", "words")
    tea, milk = bucket("tea", at=1), bucket("milk", at=2)
    of_tea = await write(database, blobs, tea)
    of_milk = await write(database, blobs, milk)

    assert await buckets.load(database, blobs, ANN, "s") == [of_milk, of_tea]
    assert await buckets.load(database, blobs, ANN, "s", {tea.bucket_id}) == [of_tea]
    assert await buckets.load(database, blobs, ANN, "s", set()) == []
    assert (of_tea.bucket, of_tea.hosted_uri) == (tea, f"blob:{of_tea.blob}")
    assert len(of_tea.bucket.timeline) == 3 and len(of_tea.bucket.timeline[-1].facts) == CARD_SIGNALS + 2

    for path in blobs.files():
        path.unlink()
    shown = await database.read(cards, ANN, "s")
    assert shown == [card(milk), card(tea)]
    assert [len(one.timeline) for one in shown] == [1, 1] and len(shown[0].timeline[0].facts) == CARD_SIGNALS


async def test_of_a_bucket_whose_blob_is_lost_the_card_is_left(
    database: Database, blobs: Kept, capfd: pytest.CaptureFixture[str]
) -> None:
    """As after a restore of rows that are older than the blobs beside them. It can be changed, and is whole again."""
    await talk(database, ANN, "s", "words")
    of_milk = await write(database, blobs, bucket("milk", at=2))
    of_tea = await write(database, blobs, bucket("tea", at=1))
    next(path for path in blobs.files() if path.name == of_tea.blob).unlink()

    milk, tea = await buckets.load(database, blobs, ANN, "s")

    assert (milk, tea) == (of_milk, replace(of_tea, bucket=card(of_tea.bucket)))
    said = capfd.readouterr().out
    assert "bucket_content_lost" in said and of_tea.blob in said and of_milk.blob not in said
    mended = await write(database, blobs, replace(tea.bucket, name="green tea", updated_at=3), base=tea.blob)
    assert await buckets.load(database, blobs, ANN, "s") == [of_milk, mended]


async def test_a_bucket_is_found_by_its_tags(database: Database, blobs: Kept) -> None:
    await talk(database, ANN, "s", "words")
    await write(database, blobs, bucket("milk"))
    kept = await write(database, blobs, bucket("tea", at=5))

    (found,) = await database.read(artifacts.by_tags, ANN, [bucket_tag(bucket_id("tea")), BUCKET], "", None, 10)

    assert (found.kind, found.name, found.session_id) == (BUCKET, bucket_id("tea"), "s")
    assert (found.blob, found.hosted_uri, found.said_at) == (kept.blob, kept.hosted_uri, 5 * SECOND)
    assert (found.turn_id, found.sequence, found.tags) == ("", 0, (bucket_tag(bucket_id("tea")), BUCKET)[::-1])


async def test_buckets_are_of_their_space_and_session(database: Database, blobs: Kept) -> None:
    for number, space in enumerate((ANN, *OTHERS)):
        for session in ("s", "t"):
            await talk(database, space, session, "words")
            await write(database, blobs, bucket(f"of {session}{number}"), space=space, session=session)

    for number, space in enumerate((ANN, *OTHERS)):
        assert await names(database, blobs, space, "s") == [f"of s{number}"]
        assert [one.name for one in await database.read(cards, space, "t")] == [f"of t{number}"]


async def test_of_two_changes_of_one_bucket_the_later_is_made_anew(database: Database, blobs: Kept) -> None:
    """A caller renames what a job has just folded, or the other way about: neither undoes the other."""
    await talk(database, ANN, "s", "words")
    first = await write(database, blobs, bucket("tea"))
    renamed = replace(first.bucket, name="green tea")
    second = await write(database, blobs, renamed, base=first.blob)

    for base in (first.blob, "", "0" * 64):
        with pytest.raises(VersionConflict):
            await write(database, blobs, replace(first.bucket, enabled=False), base=base)
    assert await names(database, blobs) == ["green tea"]

    third = await write(database, blobs, replace(renamed, enabled=False), base=second.blob)
    assert await buckets.load(database, blobs, ANN, "s") == [third]
    assert not third.bucket.enabled and third.bucket.name == "green tea"


async def test_a_bucket_that_is_gone_is_not_changed(database: Database, blobs: Kept) -> None:
    await talk(database, ANN, "s", "words")
    first = await write(database, blobs, bucket("tea"))

    with pytest.raises(VersionConflict):
        await write(database, blobs, bucket("milk"), base=first.blob)
    with pytest.raises(NotFound, match="session"):
        await write(database, blobs, bucket("tea"), base=first.blob, space=BOB)
    await database.write(delete_session, ANN, "s", "")
    with pytest.raises(NotFound, match="session"):
        await write(database, blobs, bucket("tea"), base=first.blob)
    await talk(database, ANN, "s", "words")
    with pytest.raises(VersionConflict):
        await write(database, blobs, bucket("tea"), base=first.blob)
    assert await names(database, blobs) == []


async def test_a_bucket_of_a_session_that_is_being_taken_away_is_not_changed(
    database: Database, blobs: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row still stands."""
    monkeypatch.setattr(pending_deletions, "SLICE", 1)
    await talk(database, ANN, "s", "one", "two")
    first = await write(database, blobs, bucket("tea"))
    await database.write(_gone, ANN, "s")

    assert await database.read(cards, ANN, "s") == []
    assert await buckets.load(database, blobs, ANN, "s") == []
    with pytest.raises(NotFound, match="session"):
        await write(database, blobs, bucket("tea", at=2), base=first.blob)


async def _gone(tx: Tx, space: Space, session_id: str) -> None:
    """As a deletion leaves a session with very many rows."""
    await tx.execute("DELETE FROM sessions WHERE account = $1 AND user_id = $2", space.account, space.user)
    await pending_deletions.leave(tx, space, session_id)


# Blobs


async def test_the_blob_before_is_swept_when_its_grace_is_over(database: Database, blobs: Kept, clock: Clock) -> None:
    cleaner = Cleaner(database, blobs)
    await talk(database, ANN, "s", "words")
    first = await write(database, blobs, bucket("tea"))
    assert await database.read_global(sweeps.waiting) is None
    second = await write(database, blobs, bucket("tea", at=2), base=first.blob)
    blobs.age()

    assert await database.read_global(sweeps.waiting) is None, "one sweep serves many changes"
    clock.advance(GRACE_SECONDS)
    await cleaner.clean()

    assert [path.name for path in blobs.files()] == [second.blob]
    assert await buckets.load(database, blobs, ANN, "s") == [second]
    assert await database.read_global(sweeps.waiting) is None


async def test_a_blob_that_no_row_came_to_name_is_swept_too(database: Database, blobs: Kept, clock: Clock) -> None:
    """As when a server ends in between, or a job loses its lease."""
    await talk(database, ANN, "s", "words")
    await buckets.keep(database, blobs, ANN, bucket("tea"))
    await database.write(delete_session, ANN, "s", "")
    blobs.age()

    clock.advance(GRACE_SECONDS)
    await Cleaner(database, blobs).clean()

    assert blobs.files() == []
    assert await database.read_global(sweeps.waiting) is None


async def test_a_change_puts_off_no_sweep_that_is_due(database: Database, blobs: Kept) -> None:
    await talk(database, ANN, "s", "words")
    await database.write(sweeps.ask, ANN)

    await write(database, blobs, bucket("tea"))

    sweep = await database.read_global(sweeps.waiting)
    assert sweep is not None and sweep.asked == 1
    await database.write(sweeps.done, ANN, replace(sweep, asked=0), whole=True)
    assert await database.read_global(sweeps.waiting) == sweep, "asked for anew while it went on"


async def test_blobs_leave_with_their_session(database: Database, blobs: Kept) -> None:
    for space in (ANN, BOB):
        for session in ("s", "t"):
            await talk(database, space, session, "words")
            await write(database, blobs, bucket(f"of {session}"), space=space, session=session)
    blobs.age()

    await database.write(delete_session, ANN, "s", "")
    await Cleaner(database, blobs).clean()

    assert len(blobs.files()) == 3
    assert await names(database, blobs, ANN, "t") == ["of t"]
    assert await names(database, blobs, BOB, "s") == ["of s"]


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_bucket_that_is_replaced_while_it_is_read_is_read_anew(
    database: Database, blobs: Kept, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row was read, then another change came, and the sweep took the blob that the row had named."""
    await talk(database, ANN, "s", "words")
    last = await write(database, blobs, bucket("tea"))
    read = database.read

    async def replace_behind(work: Any, *args: Any) -> Any:
        nonlocal last, times
        found = await read(work, *args)
        if times and work is buckets.rows:
            times -= 1
            before, last = last, await write(database, blobs, bucket("tea", at=10 - times), base=last.blob)
            next(path for path in blobs.files() if path.name == before.blob).unlink()
        return found

    monkeypatch.setattr(database, "read", replace_behind)

    if times == 3:
        with pytest.raises(StoreUnavailable, match="faster"):
            await buckets.load(database, blobs, ANN, "s")
    else:
        assert await buckets.load(database, blobs, ANN, "s") == [last]
    assert times == 0


async def test_a_session_made_anew_has_no_buckets(database: Database, blobs: Kept) -> None:
    await talk(database, ANN, "s", "words")
    await write(database, blobs, bucket("tea"))
    await database.write(delete_session, ANN, "s", "")

    await database.write(sessions.create, ANN, "s")

    assert await database.read(cards, ANN, "s") == []
    await write(database, blobs, bucket("tea", at=3))
    assert await names(database, blobs) == ["tea"]
