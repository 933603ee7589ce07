"""Erasures on every store: what other rows than those of the message itself carried of it."""

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from runekeep_common import tokens
from runekeep_schemas.turns.feedback import MACHINE, Reaction
from runekeep_schemas.turns.fingerprint import Fingerprint, Query
from runekeep_schemas.turns.selection import Offer
from runekeep_schemas.turns.summary import Summary
from runekeep_schemas.turns.window import LAST_TURNS
from runekeep_storage.database import Database, Tx
from runekeep_storage.erasure import deletion
from runekeep_storage.erasure import turns as erased_turns
from runekeep_storage.erasure.contexts import GONE
from runekeep_storage.erasure.receipts import Kind, Scope, State
from runekeep_storage.erasure.verification import left
from runekeep_storage.errors import NotFound
from runekeep_storage.jobs import extraction_records, jobs, tasks
from runekeep_storage.memories import turn_outputs
from runekeep_storage.memories.turn_outputs import TurnFindings, TurnJobEnd
from runekeep_storage.records import STORED_OUTPUT, Message
from runekeep_storage.sessions import sessions
from runekeep_storage.turns import feedback, turns
from runekeep_storage.turns import jobs as turn_jobs
from runekeep_storage.turns.jobs import NO_RECONCILIATION, Reconciliation
from runekeep_storage.turns.memories import TurnMemory
from tests.support.storage.databases import ANN, ON_SQLITE, Clock, claim, uri
from tests.support.storage.deletions import dump
from tests.support.storage.erasures import WORD, Store, extract, say, sources, tables_with, version, words
from tests.support.storage.statements import Statements

MESSAGES = Scope(Kind.MESSAGES, session_id="s", message_ids=("m2",))


async def _react(database: Database, about: str, said_in: str, text: str) -> None:
    async def work(tx: Tx) -> None:
        turn = await turns.get(tx, ANN, "s", about)
        said = Reaction(f"r-{about}-{said_in}", about, "not_ok", text, MACHINE, 0.9, said_in, 0)
        await feedback.put(tx, ANN, "s", turn, said)

    await database.write_global(work)


async def test_a_reaction_that_was_said_in_an_erased_message_goes_from_the_turn_it_is_about(
    store: Store, clock: Clock
) -> None:
    database = store.database
    await say(
        database,
        ANN,
        "s",
        words("m1", "tea", turn_id="t1"),
        words("m2", f"that {WORD} was wrong", turn_id="t2"),
        words("m3", "good", turn_id="t3"),
    )
    await _react(database, "t1", "t2", f"that {WORD} was wrong")
    await _react(database, "t1", "t3", "good")
    before = (await dump(database, ANN))["turn_artifacts"]
    clock.advance(1)

    erased = await store.erase(ANN, MESSAGES)

    assert await tables_with(database, ANN, WORD) == set()
    assert erased.receipt.turn_artifacts == 1
    kept = (await dump(database, ANN))["turn_artifacts"]
    assert [row["name"] for row in kept] == ["r-t1-t3"]
    assert await database.read(left, ANN, erased) == {}
    (gone,) = (row for row in before if row not in kept)
    names = ", ".join(gone)

    async def plant(tx: Tx) -> None:
        marks = ", ".join(f"${number}" for number in range(1, len(gone) + 1))
        await tx.execute(f"INSERT INTO turn_artifacts ({names}) VALUES ({marks})", *gone.values())

    await database.write_global(plant)
    assert await database.read(left, ANN, erased) == {"turn_artifacts": 1}


def _showing(message_id: str, *uris: str) -> Message:
    shown: list[dict[str, Any]] = [{"type": "context", "uri": one, "abstract": f"Likes {one}"} for one in uris]
    return Message(message_id, "assistant", ({"type": "text", "text": "ok"}, *shown))


async def test_contexts_of_other_messages_show_nothing_of_memories_that_were_taken_back(
    store: Store, clock: Clock
) -> None:
    database = store.database
    await say(database, ANN, "s", words("m1", "tea"), words("m2", f"the {WORD}"))
    gone = version(ANN, f"{WORD}-milk", 0, 1, f"{WORD} milk", sources("s", "m2"))
    first = version(ANN, "tea", 0, 1, "green", sources("s", "m1"))
    rice = version(ANN, "rice", 0, 1, "plain", sources("s", "m1"))
    await extract(database, ANN, "s", "a1", gone, first, rice, quoting="")
    await say(database, ANN, "s", words("m3", "more"))
    await extract(database, ANN, "s", "a2", version(ANN, "tea", 1, 2, WORD, sources("s", "m2")), quoting="")
    (milk, tea, other) = (uri(ANN, name) for name in (f"{WORD}-milk", "tea", "rice"))
    await say(database, ANN, "live", _showing("o1", milk, tea, other), words("o2", "so"))
    await say(database, ANN, "old", _showing("o1", tea, "not a uri"))
    await extract(database, ANN, "old", "a3", quoting="")
    planted = (await dump(database, ANN))["messages"]
    clock.advance(1)

    erased = await store.erase(ANN, MESSAGES)

    assert await tables_with(database, ANN, WORD) == set()
    (shown, _) = await database.read(sessions.messages_between, ANN, "live", 1, 9)
    assert [(part["uri"], part["abstract"]) for part in shown.parts[1:]] == [
        (GONE, ""),
        (tea, ""),
        (other, f"Likes {other}"),
    ]
    (old,) = await database.read(sessions.messages_between, ANN, "old", 1, 9)
    assert [part["abstract"] for part in old.parts[1:]] == ["", "Likes not a uri"]
    rows = (await dump(database, ANN))["messages"]
    for row in rows:
        if not row["erased"]:
            assert row["tokens"] == tokens.tokens_of_stored(row["parts"])
    for session_id in ("live", "old"):
        session = await database.read(sessions.get, ANN, session_id)
        live = [row["tokens"] for row in rows if row["session_id"] == session_id == "live"]
        assert session.live_tokens == sum(live)
    assert await database.read(left, ANN, erased) == {}
    for row in planted:
        if row["message_id"] == "o1":
            await database.write_global(_show, row["session_id"], row["shown"])
    assert await database.read(left, ANN, erased) == {"messages": 2}


async def _show(tx: Tx, session_id: str, shown: str) -> None:
    await tx.execute(
        "UPDATE messages SET shown = $1 WHERE user_id = 'ann' AND session_id = $2 AND message_id = 'o1'",
        shown,
        session_id,
    )


async def _queue(tx: Tx, turn_id: str, reconciliation: Reconciliation) -> str:
    turn = await turns.get(tx, ANN, "s", turn_id)
    return await turn_jobs.queue_fingerprint(tx, ANN, turn, "", "", 10, reconciliation)


async def _find_out(database: Database, turn_id: str, reconciliation: Reconciliation = NO_RECONCILIATION) -> str:
    """What the fingerprint of a turn was made of, recorded with the word in it; the task."""
    task_id = await database.write_global(_queue, turn_id, reconciliation)
    job = await claim(database)
    if reconciliation.is_wanted:
        await database.write(turn_outputs.take_context, ANN, job.lease, Offer("s", (turn_id,)).encode())
    made = extraction_records.AttemptRecord("{}", extraction_records.pack([{"answer": f"context: {WORD}"}]), {})
    memory = TurnMemory(turn_id, Fingerprint(turn_id, "asks on"), Summary(notes="after"))
    await database.write(turn_outputs.apply_turn, ANN, TurnJobEnd(job.lease, "o1", {}, [], made), TurnFindings(memory))
    return task_id


async def test_recorded_answers_about_the_turns_that_followed_go(store: Store, clock: Clock) -> None:
    """Their workers were shown the turns before."""
    database = store.database
    later = [f"t{number}" for number in range(2, 3 + LAST_TURNS)]
    said = [words(f"m{turn_id}", "and now?", turn_id=turn_id) for turn_id in later]
    await say(database, ANN, "s", words("m2", f"the {WORD}", turn_id="t1"), *said)
    made = [await _find_out(database, turn_id) for turn_id in later]
    before = (await dump(database, ANN))["extraction_records"]
    clock.advance(1)

    erased = await store.erase(ANN, MESSAGES)

    kept = (await dump(database, ANN))["extraction_records"]
    assert [row["task_id"] for row in kept] == [made[-1]], "its worker was shown the turns between alone"
    assert await database.read(left, ANN, erased) == {}
    (row,) = (row for row in before if row["task_id"] == made[0])
    marks = ", ".join(f"${number}" for number in range(1, len(row) + 1))

    async def plant(tx: Tx) -> None:
        await tx.execute(f"INSERT INTO extraction_records ({', '.join(row)}) VALUES ({marks})", *row.values())

    await database.write_global(plant)
    assert await database.read(left, ANN, erased) == {"extraction_records": 1}


async def test_what_reconciled_a_turn_further_on_and_queries_that_quote_it_go(store: Store, clock: Clock) -> None:
    """Its worker was shown turns of any age."""
    database = store.database
    later = [f"t{number}" for number in range(2, 4 + LAST_TURNS)]
    said = [words(f"m{turn_id}", "and now?", turn_id=turn_id) for turn_id in later]
    await say(database, ANN, "s", words("m2", f"the {WORD}", turn_id="t1"), *said)
    selecting = Reconciliation(selection=True, queries=(Query("user", "and now?"),))
    await _find_out(database, later[-1], selecting)
    # Nobody has run these: one waits, the other one may be retried.
    quoting = Reconciliation(selection=True, queries=(Query("user", f"the {WORD}"),))
    for turn_id in later[:2]:
        task_id = await database.write_global(_queue, turn_id, quoting)
    await database.write(jobs.cancel, ANN, task_id, "")
    assert "jobs" in await tables_with(database, ANN, WORD)
    clock.advance(1)

    erased = await store.erase(ANN, MESSAGES)

    assert await tables_with(database, ANN, WORD) == set()
    assert "extraction_records" not in await dump(database, ANN)
    assert await database.read(left, ANN, erased) == {}


async def test_nobody_keeps_queries_of_a_job_that_is_done_or_of_a_session_that_is_deleted(
    store: Store, clock: Clock
) -> None:
    database = store.database
    await say(database, ANN, "s", words("m1", "tea", turn_id="t1"), words("m2", "rice", turn_id="t2"))
    quoting = Reconciliation(selection=True, queries=(Query("user", f"the {WORD}"),))
    done = await _find_out(database, "t1", quoting)
    made = {row["job_id"]: row["plan"] for row in (await dump(database, ANN))["jobs"]}
    assert WORD not in made[done] and "extract_selection" in made[done]
    await database.write_global(_queue, "t2", quoting)
    assert "jobs" in await tables_with(database, ANN, WORD)
    await database.write(deletion.delete_session, ANN, "s", "not wanted")
    assert "jobs" not in await tables_with(database, ANN, WORD)


@ON_SQLITE
async def test_an_erasure_makes_few_statements_whatever_number_of_turns_was_reconciled(
    store: Store, clock: Clock
) -> None:
    database = store.database
    later = [f"t{number}" for number in range(2, 102)]
    said = [words(f"m{turn_id}", "and now?", turn_id=turn_id) for turn_id in later]
    await say(database, ANN, "s", words("m1", "tea", turn_id="t1"), words("m2", f"the {WORD}", turn_id="t1"), *said)
    numbers = []
    for some in (later[:10], later[10:]):
        for turn_id in some:
            task_id = await _find_out(database, turn_id, Reconciliation(selection=True))
            told = {"phase": 1, "percent": 10, "message": f"reads {WORD}"}
            await database.write(tasks.add_event, ANN, task_id, "progress", told)

        async def erased(tx: Tx) -> int:
            noted = Statements(tx)
            await erased_turns.take_away(cast(Tx, noted), ANN, "s", ["t1"], "")
            return noted.number

        numbers.append(await database.write_global(erased))
    assert await tables_with(database, ANN, WORD) == {"messages"}
    assert numbers[1] < numbers[0] + 100 // 32 * 12 + 12, numbers


async def test_recorded_answers_of_a_commit_that_archived_another_part_of_the_turn_go(
    store: Store, clock: Clock
) -> None:
    database = store.database
    await say(database, ANN, "s", words("m1", "tea", turn_id="t1"))
    await extract(database, ANN, "s", "a1", quoting=WORD)
    await say(database, ANN, "s", words("m2", WORD, turn_id="t1"))
    clock.advance(1)
    await store.erase(ANN, MESSAGES)
    assert await tables_with(database, ANN, WORD) == set()


def _tool(message_id: str, tool_id: str, blob: str) -> Message:
    part = {"type": "tool", "tool_id": tool_id, "tool_name": "look", STORED_OUTPUT: blob, "output": "same"}
    return Message(message_id, "assistant", (part,))


@pytest.mark.parametrize("tool_id", ["call-1", "call-2"])
async def test_an_output_that_another_message_names_too_stays(store: Store, clock: Clock, tool_id: str) -> None:
    database = store.database
    blob = store.blobs.put(ANN, b"same output " * 1000)
    await say(database, ANN, "s", _tool("m2", "call-1", blob), _tool("m3", tool_id, blob))
    erased = await store.erase(ANN, MESSAGES)
    assert erased.receipt.blobs == 0, "it has a name left"
    kept = await database.read(sessions.tool_output, ANN, "s", tool_id)
    assert kept is not None and kept[0] == blob
    assert (await database.read(sessions.tool_output, ANN, "s", "call-1") is None) == (tool_id != "call-1")
    await say(database, ANN, "other", _tool("o1", "call-1", blob))
    whole = await store.erase(ANN, Scope(Kind.SESSION, session_id="s"), "e2")
    assert whole.receipt.blobs == 0
    last = await store.erase(ANN, Scope(Kind.SESSION, session_id="other"), "e3")
    assert last.receipt.blobs == 1


async def test_receipts_count_a_message_once(store: Store, clock: Clock) -> None:
    await say(store.database, ANN, "s", words("m1", "tea"), words("m2", WORD))
    await say(store.database, ANN, "t", words("m1", "tea"), words("m2", WORD))
    scopes = (
        MESSAGES,
        Scope(Kind.SESSION, session_id="s"),
        replace(MESSAGES, session_id="t"),
        Scope(Kind.USER),
    )
    counted = [(await store.erase(ANN, scope, f"e{n}")).receipt.messages for n, scope in enumerate(scopes)]
    assert counted == [1, 1, 1, 1]


async def test_a_session_that_is_deleted_is_erased_although_it_left_no_memory(store: Store, clock: Clock) -> None:
    database = store.database
    await say(database, ANN, "s", words("m2", WORD))
    await extract(database, ANN, "s", "a1", quoting=WORD)
    await database.write(deletion.delete_session, ANN, "s", "not wanted")
    assert await tables_with(database, ANN, WORD), "its task says it"
    clock.advance(1)
    await store.erase(ANN, Scope(Kind.SESSION, session_id="s"))
    assert await tables_with(database, ANN, WORD) == set()
    with pytest.raises(NotFound):
        await database.read(tasks.get, ANN, "a1")
    clock.advance(3700)
    assert (await store.finish(ANN)).state is State.VERIFIED
    with pytest.raises(NotFound):
        await store.erase(ANN, Scope(Kind.SESSION, session_id="s"), "e2")
    assert json.loads((await dump(database, ANN))["erasures"][0]["receipt"])["tasks"] == 1
