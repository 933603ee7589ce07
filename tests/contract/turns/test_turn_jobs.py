"""Jobs about turns: queued once, ahead of commits or in their lane, and woken again for no other session."""

import json

import pytest

from runekeep_schemas.turns.fingerprint import Fingerprint
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.erasure.deletion import delete_session
from runekeep_storage.errors import BacklogFull, NotFound
from runekeep_storage.jobs import claiming, extraction_records, jobs, tasks
from runekeep_storage.jobs.budgets import UNLIMITED
from runekeep_storage.jobs.claiming import Unwanted
from runekeep_storage.jobs.jobs import BUCKET_RECONCILE, COMMIT, TURN_FINGERPRINT, Failure
from runekeep_storage.records import Turn
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import pending_deletions
from runekeep_storage.tables import SLICES
from runekeep_storage.turns import fingerprints, turns
from runekeep_storage.turns import jobs as turn_jobs
from tests.support.appending import add_messages
from tests.support.storage.databases import ANN, BOB, MADE, TERMS, Clock, claim, commit, queue, talk, text
from tests.support.storage.deletions import dump

pytestmark = pytest.mark.postgres_long

MOST = 10
FAILURE = Failure("model_error", "no")


async def turn(database: Database, space: Space = ANN, session_id: str = "s", turn_id: str = "t1") -> Turn:
    """A turn of one message, with a fingerprint."""

    async def work(tx: Tx) -> Turn:
        session, _ = await sessions.get_or_create(tx, space, session_id)
        message = text(f"m{session.last_sequence + 1}", "words", turn_id=turn_id)
        await add_messages(tx, space, session_id, [message], {})
        found = await turns.get(tx, space, session_id, turn_id)
        await fingerprints.submit(tx, space, found, Fingerprint(turn_id, f"objective of {session.last_sequence}"))
        return found

    return await database.write_global(work)


async def fingerprint(database: Database, of: Turn, spec: str = "", space: Space = ANN, most: int = MOST) -> str:
    return await database.write(turn_jobs.queue_fingerprint, space, of, spec, "trace", most)


async def reconcile(database: Database, session_id: str = "s", space: Space = ANN) -> str:
    return await database.write(turn_jobs.queue_reconcile, space, session_id, "trace", MOST)


async def opened(database: Database, space: Space, kind: str) -> int:
    return await database.read(jobs.open_jobs, space, kind)


# Fingerprints


async def test_a_fingerprint_job_says_what_it_is_about_and_goes_first(database: Database, clock: Clock) -> None:
    await queue(database, ANN, "commit")
    one, other = await turn(database), await turn(database, turn_id="t2")

    task_id = await fingerprint(database, one, "names of tools")
    clock.advance(1)
    second = await fingerprint(database, other)

    job = await claim(database)
    assert (job.job_id, job.kind, job.session_id, job.archive_index) == (task_id, TURN_FINGERPRINT, "s", 0)
    assert json.loads(job.plan) == {"turn_id": "t1", "assistant_signal_spec": "names of tools"}
    assert job.traceparent == "trace"
    task = await database.read(tasks.get, ANN, task_id)
    assert (task.kind, task.session_id, task.turn_id, task.archive_index) == (TURN_FINGERPRINT, "s", "t1", 0)
    # Its lane is its own: nobody waits for it, and it waits for nobody.
    assert (await claim(database)).job_id == second
    assert (await claim(database)).job_id == "commit"


async def test_jobs_ahead_of_commits_hold_up_none_of_another_user_for_ever(database: Database, clock: Clock) -> None:
    mine = [await turn(database, turn_id=f"t{number}") for number in range(12)]
    for one in mine[:6]:
        await fingerprint(database, one, most=20)
    clock.advance(1)
    await queue(database, BOB, "first")
    await queue(database, Space(ANN.account, "cara"), "second")
    clock.advance(1)

    given = []
    for one in mine[6:]:
        # A stream of them: there is always one more.
        await fingerprint(database, one, most=20)
        given.append((await claim(database)).job_id)
    given += [(await claim(database)).job_id for _ in range(8)]

    # The oldest first, whoever it is of; without any that is ready nobody waits.
    assert [place for place, job_id in enumerate(given) if job_id in ("first", "second")] == [3, 7]
    assert (given[3], given[7]) == ("first", "second")
    await queue(database, Space(ANN.account, "dora"), "third")
    await fingerprint(database, await turn(database, turn_id="last"), most=20)
    assert (await claim(database)).job_id == "third", "its turn came while there was none"


async def test_what_is_unwanted_is_given_to_nobody_and_ends(database: Database) -> None:
    await turn(database)
    bucket_job = await reconcile(database)
    await commit(database, ANN, "s", "commit")
    unwanted = (BUCKET_RECONCILE,)

    async def end_it(tx: Tx) -> str:
        for _ in range(2):
            claimed = await claiming.claim(tx, "w", TERMS, unwanted=unwanted)
            assert isinstance(claimed, Unwanted), "it stays first until it is ended"
        await jobs.cancel(tx, jobs.space_of(claimed.job), claimed.job.job_id, "why")
        return claimed.job.job_id

    assert await database.write_global(end_it) == bucket_job
    task = await database.read(tasks.get, ANN, bucket_job)
    assert (task.state, task.attempt, task.started_at) == ("cancelled", 0, 0)
    claimed = await database.write_global(claiming.claim, "w", TERMS, UNLIMITED, unwanted)
    assert claimed[0].job_id == "commit"
    assert await database.write_global(claiming.claim, "w", TERMS, UNLIMITED, unwanted) is None


async def test_a_job_that_waits_for_the_turn_is_given_again(database: Database, clock: Clock) -> None:
    one, other = await turn(database), await turn(database, session_id="other")
    task_id = await fingerprint(database, one, "first")

    clock.advance(1)
    assert await fingerprint(database, one, "second") == task_id
    assert await fingerprint(database, other) != task_id
    assert await fingerprint(database, one) == task_id
    job = await claim(database)
    assert json.loads(job.plan) == {"turn_id": "t1", "assistant_signal_spec": "second"}

    # It has read its turn already: what was said since needs another one, which waits for it.
    following = await fingerprint(database, one, "third")
    assert following != task_id and await opened(database, ANN, TURN_FINGERPRINT) == 3
    await database.write_global(jobs.requeue, job, FAILURE, delay=0, counts="attempts")
    assert await fingerprint(database, one) == task_id
    again = await claim(database)
    assert (again.job_id, json.loads(again.plan)["assistant_signal_spec"]) == (task_id, "second")


async def test_jobs_of_a_kind_are_bounded_for_each_user(database: Database) -> None:
    of_ann = [await turn(database, turn_id=f"t{number}") for number in range(MOST + 1)]
    for one in of_ann[:MOST]:
        await fingerprint(database, one)

    with pytest.raises(BacklogFull):
        await fingerprint(database, of_ann[MOST])

    assert await fingerprint(database, of_ann[0]), "the one that waits is no further one"
    assert await fingerprint(database, await turn(database, BOB), space=BOB)
    assert await reconcile(database)
    # Commits are counted by themselves, and so are these.
    await commit(database, ANN, "s", "commit")
    kinds = {kind: await opened(database, ANN, kind) for kind in (TURN_FINGERPRINT, BUCKET_RECONCILE, COMMIT)}
    assert kinds == {TURN_FINGERPRINT: MOST, BUCKET_RECONCILE: 1, COMMIT: 1}


# Buckets


async def test_a_bucket_job_waits_in_the_lane_of_commits(database: Database) -> None:
    await turn(database)
    await commit(database, ANN, "s", "commit")

    task_id = await reconcile(database)

    assert (await claim(database)).job_id == "commit"
    assert await database.write_global(claiming.claim, "w2", TERMS) is None
    task = await database.read(tasks.get, ANN, task_id)
    assert (task.kind, task.session_id, task.turn_id) == (BUCKET_RECONCILE, "s", "")


async def test_a_bucket_job_that_waits_for_the_session_is_given_again(database: Database) -> None:
    await turn(database)
    await turn(database, session_id="other")
    # First in its lane, so first to be claimed.
    task_id = await reconcile(database)

    assert await reconcile(database) == task_id
    assert await reconcile(database, "other") != task_id

    assert (await claim(database)).job_id == task_id
    following = await reconcile(database)
    assert following != task_id, "it may have read its input already"
    assert await reconcile(database) == following
    assert await opened(database, ANN, BUCKET_RECONCILE) == 3


async def test_nothing_new_is_no_job(database: Database) -> None:
    await talk(database, ANN, "silent", "words")
    assert await reconcile(database, "silent") == ""
    await turn(database)
    version = await database.read(fingerprints.turn_version, ANN, "s")

    await database.write(fingerprints.cover, ANN, "s", version)
    assert await reconcile(database) == ""
    await turn(database, turn_id="t2")
    assert await reconcile(database) != ""

    with pytest.raises(NotFound, match="session"):
        await reconcile(database, "nowhere")
    with pytest.raises(NotFound, match="session"):
        await reconcile(database, space=BOB)


async def test_bucket_jobs_are_bounded_for_each_user(database: Database) -> None:
    for number in range(MOST + 1):
        await turn(database, session_id=f"s{number}")
    for number in range(MOST):
        await reconcile(database, f"s{number}")

    with pytest.raises(BacklogFull):
        await reconcile(database, f"s{MOST}")
    assert await opened(database, ANN, BUCKET_RECONCILE) == MOST


# Ended jobs


@pytest.mark.parametrize("kind", [TURN_FINGERPRINT, BUCKET_RECONCILE])
async def test_a_dead_letter_is_woken_while_its_session_is_there(database: Database, clock: Clock, kind: str) -> None:
    one = await turn(database)
    task_id = await (fingerprint(database, one) if kind == TURN_FINGERPRINT else reconcile(database))
    await database.write_global(jobs.give_up, await claim(database), FAILURE, {})
    clock.advance(1)

    await database.write(jobs.retry, ANN, task_id)

    job = await claim(database)
    assert (job.job_id, job.kind) == (task_id, kind)
    await database.write_global(jobs.give_up, job, FAILURE, {})
    await database.write(delete_session, ANN, "s", "")
    with pytest.raises(NotFound, match="session"):
        await database.write(jobs.retry, ANN, task_id)
    # Another session of that name, with a turn of that name.
    await turn(database)
    with pytest.raises(NotFound, match="session"):
        await database.write(jobs.retry, ANN, task_id)
    assert await opened(database, ANN, kind) == 0
    assert (await database.read(tasks.get, ANN, task_id)).state == "failed"


async def test_records_of_attempts_go_with_their_session_in_slices(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are long, and a session has one for every turn that was looked at."""
    monkeypatch.setitem(SLICES, "extraction_records", 2)
    for number in range(7):
        clock.advance(1)
        await fingerprint(database, await turn(database, turn_id=f"t{number}"))
        await database.write_global(extraction_records.keep, await claim(database), MADE, None)
    left = [7]
    await database.write(delete_session, ANN, "s", "")
    more = True
    while more:
        left.append(len((await dump(database, ANN)).get("extraction_records", [])))
        more = await database.write(pending_deletions.clear, ANN)

    assert left == [7, 5, 3, 1]
    assert "extraction_records" not in await dump(database, ANN)
