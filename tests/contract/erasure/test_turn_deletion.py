"""Turn memory of sessions and users that are deleted: nothing of it is read any more, and all of it goes, in slices."""

from itertools import pairwise
from pathlib import Path

import pytest

from runekeep_schemas.turns.stored import FINGERPRINT, KINDS, bucket_tag, turn_tag
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.erasure.cleanup import Cleaner
from runekeep_storage.erasure.deletion import delete_session, delete_user
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import pending_deletions
from runekeep_storage.tables import SLICES
from runekeep_storage.turns import artifacts, buckets, feedback, fingerprints, selections, turns
from tests.support.storage.databases import ANN, BOB
from tests.support.storage.deletions import TURN_TABLES, choose, dump, slices_of, take_turn

pytestmark = pytest.mark.postgres_long


async def memories_of_turns(database: Database, space: Space, session_id: str) -> dict[str, object]:
    """All that is read of turns: of the session, and of all sessions of the user that still have something to say."""

    async def work(tx: Tx) -> dict[str, object]:
        of_user = {
            "signals": [one[0] for one in await fingerprints.signals(tx, space, limit=1000)],
            "keys": [one[0] for one in await fingerprints.signals(tx, space, keys=["tea"], limit=1000)],
            "feedback": [one.session_id for one in await feedback.page(tx, space, "", [], 0, 0, None, 1000)],
            "counts": ["" for _ in range((await feedback.counts(tx, space, "", [], 0, 0)).total)],
            "tags": [
                one.session_id
                for tag in (*KINDS, turn_tag("t1"), bucket_tag("obj-tea-1"))
                for one in await artifacts.by_tags(tx, space, [tag], "", None, 1000)
            ],
        }
        of_session: dict[str, object] = {
            "find": await turns.find(tx, space, session_id, ["t1", "t2"]),
            "before": await turns.before(tx, space, session_id, 2**62, 100),
            "fingerprinted": await turns.before(tx, space, session_id, 2**62, 100, fingerprinted_only=True),
            "between": await turns.between(tx, space, session_id, 1, 2**62),
            "of": await fingerprints.of(tx, space, session_id, ["t1", "t2"]),
            "delta": (await fingerprints.delta(tx, space, session_id, 0))[1],
            "uncovered": await fingerprints.uncovered(tx, space, session_id, 100),
            "left": await fingerprints.left(tx, space, session_id),
            "session_signals": await fingerprints.signals(tx, space, session_id=session_id, limit=1000),
            "reactions": await feedback.page(tx, space, session_id, [], 0, 0, None, 1000),
            "reactions_of": await feedback.page(tx, space, session_id, ["t1"], 0, 0, None, 1000),
            "artifacts": await artifacts.by_tags(tx, space, [FINGERPRINT], session_id, None, 1000),
            "selection": await selections.get(tx, space, session_id),
            "cards": await buckets.rows(tx, space, session_id),
        }
        return {name: sorted(found) for name, found in of_user.items() if found} | {
            name: found for name, found in of_session.items() if found
        }

    return await database.read_global(work)


async def standing(database: Database, space: Space) -> dict[str, int]:
    found = await dump(database, space)
    return {table: len(found[table]) for table in TURN_TABLES if table in found}


@pytest.mark.parametrize("whole", ["session", "user"])
async def test_turn_memory_that_is_not_yet_taken_away_cannot_be_reached(
    database: Database, whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for space in (ANN, BOB):
        for number in range(1, 8):
            await take_turn(database, space, "s", f"t{number}", machines=4)
        await choose(database, space, "s")
    if whole == "session":
        await take_turn(database, ANN, "kept", "t1")
    of_bob = await dump(database, BOB)
    read_by_bob = await memories_of_turns(database, BOB, "s")
    assert len(read_by_bob) == 19, "everything that is asked for has an answer"
    slices_of(monkeypatch, 2)

    if whole == "session":
        await database.write(delete_session, ANN, "s", "")
    else:
        await database.write(delete_user, ANN, "")

    assert all(count > 10 for table, count in (await standing(database, ANN)).items() if table != "turns")
    found = await memories_of_turns(database, ANN, "s")
    if whole == "session":
        # One fingerprint, two reactions, and their tags: all of the session that stays.
        assert {key: value for key, value in found.items() if key != "counts"} == {
            "signals": ["kept"], "keys": ["kept"], "feedback": ["kept"] * 2, "tags": ["kept"] * 6,
        }  # fmt: skip
        assert found["counts"] == ["", ""]
    else:
        assert found == {}
    await Cleaner(database, FolderBlobs(tmp_path)).clean()
    left = await standing(database, ANN)
    assert left.get("turns", 0) == (whole == "session") and (left == {} or whole == "session")
    assert await memories_of_turns(database, ANN, "s") == found
    assert await dump(database, BOB) == of_bob
    assert await memories_of_turns(database, BOB, "s") == read_by_bob


async def test_a_session_made_anew_has_no_turn_memory(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it lose its own, under the same names, to a cleaner that comes late."""
    for number in range(1, 5):
        await take_turn(database, ANN, "s", f"t{number}", machines=10)
    await choose(database, ANN, "s")
    slices_of(monkeypatch, 3)
    await database.write(delete_session, ANN, "s", "")
    assert await standing(database, ANN) != {}

    await pending_deletions.retry_after_cleanup(database, ANN, lambda: database.write(sessions.create, ANN, "s"))

    assert await standing(database, ANN) == {}
    assert await memories_of_turns(database, ANN, "s") == {}
    assert await database.read(fingerprints.turn_version, ANN, "s") == 0
    await take_turn(database, ANN, "s", "t1")
    await choose(database, ANN, "s")
    found = await memories_of_turns(database, ANN, "s")
    await Cleaner(database, FolderBlobs(tmp_path)).clean()
    assert not await database.write(pending_deletions.clear_some_of, ANN, "s")
    assert await memories_of_turns(database, ANN, "s") == found
    assert found["delta"] == ["t1"]


async def test_what_one_turn_and_the_session_hold_goes_in_few_slices(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Artifacts and tags of one turn have one sequence, and those of the session have none: each go together."""
    for number in range(1, 4):
        await take_turn(database, ANN, "s", f"t{number}", machines=40)
    await choose(database, ANN, "s")
    before = await standing(database, ANN)
    a_turn = {"turns": 1, "turn_artifacts": 42, "turn_tags": 4 + 41 * 3}
    of_session = {"turns": 0, "turn_artifacts": 2, "turn_tags": 3}
    assert before == {table: of_session[table] + 3 * a_turn[table] for table in TURN_TABLES}
    slices_of(monkeypatch, 10)
    await database.write(delete_session, ANN, "s", "")

    slices = [before, await standing(database, ANN)]
    while await database.write(pending_deletions.clear, ANN):
        slices.append(await standing(database, ANN))
    slices.append(await standing(database, ANN))

    assert slices[-1] == {}
    for one, following in pairwise(slices):
        for table in TURN_TABLES:
            assert one.get(table, 0) - following.get(table, 0) < SLICES[table] + a_turn[table]
    assert len(slices) > 3
