"""Nobody reaches turn memory that is another's: every RPC of TurnMemoryService, tried by strangers on a victim's names,
from outside and out of a session of their own that is called the same."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

from runekeep.v1 import turn_memory_service_pb2 as pb
from tests.support.callers import Caller, failure
from tests.support.named_requests import is_about_the_name, named_requests
from tests.support.turn_calls import buckets_of, submit, talk, turn_of
from tests.support.turns import bucketed, fingerprinted, load, paged, react, select, signal

SECRET = "xylophonist"
ARTIFACTS = (
    "artifact:turn.fingerprint.v1",
    "artifact:turn.log.reaction",
    "conversation.active_set.v1",
    "conversation.memory.bucket.v1",
    "assistant_signal",
    f"assistant_signal:{SECRET}",
    "origin:user",
    "turn:t1",
)


@dataclass(frozen=True)
class Victim:
    """Somebody with turns, of which some are archived, and everything that turn memory holds, full of the secret."""

    caller: Caller
    session: str
    bucket: str
    offer: str
    tokens: dict[str, str]

    @property
    def names(self) -> tuple[str, str]:
        return self.session, self.caller.uri(f"sessions/{self.session}")

    async def state(self) -> list[Message]:
        """All that strangers must neither see nor change."""
        caller, session = self.caller, self.session
        everything: list[Message] = [
            await turn_of(caller, session, "t1"),
            await caller.turns.ListTurns(pb.ListTurnsRequest(session=session)),
            await caller.turns.ListAssistantSignals(pb.ListAssistantSignalsRequest()),
            await caller.turns.ListFeedback(pb.ListFeedbackRequest()),
            (await load(caller, session, "t3", "reconciler")).selection,
            *await buckets_of(caller, session),
        ]
        for tag in ARTIFACTS:
            everything.append(await caller.turns.ListTurnArtifacts(pb.ListTurnArtifactsRequest(tags=[tag])))
        return everything


@pytest.fixture
async def victim(callers: Callable[..., Caller]) -> AsyncIterator[Victim]:
    caller = callers()
    session = await caller.session(session_id="s")
    promoted = [signal(SECRET, SECRET)]
    for name in ("t1", "t2"):
        await fingerprinted(caller, session, name, f"Find a {SECRET}", topics=[SECRET], assistant_signals=promoted)
        await submit(caller, session, name, summary=pb.TurnSummary(notes=SECRET))
        await react(caller, session, name, text=SECRET)
        await react(caller, session, name, machine=True, text=SECRET)
    (bucket,) = await bucketed(caller, session, "Orchestra", turn_id="t3")
    named = pb.MemoryBucket(session=session, bucket_id=bucket.bucket_id, short_desc=SECRET)
    await caller.turns.UpdateMemoryBucket(
        pb.UpdateMemoryBucketRequest(bucket=named, update_mask=FieldMask(paths=["short_desc"]))
    )
    offer = (await load(caller, session, "t3", "reconciler")).offer
    await select(caller, session, offer, turn_ids=["t1"], memory_bucket_ids=[bucket.bucket_id], current_turn_id="t3")
    await caller.commit(session, keep_recent_count=1)
    await caller.searchable()
    await talk(caller, session, "t4", f"Still a {SECRET}")
    tokens = {
        name: (await getattr(caller.turns, name)(request)).next_page_token for name, request in first_pages(session)
    }
    assert all(tokens.values())
    yield Victim(caller, session, bucket.bucket_id, offer, tokens)


def first_pages(session: str) -> list[tuple[str, Any]]:
    return [
        ("ListTurns", pb.ListTurnsRequest(session=session, page_size=1)),
        ("ListAssistantSignals", pb.ListAssistantSignalsRequest(page_size=1)),
        ("ListFeedback", pb.ListFeedbackRequest(page_size=1)),
        ("ListTurnArtifacts", pb.ListTurnArtifactsRequest(tags=[ARTIFACTS[0]], page_size=1)),
    ]


STRANGERS = ("another user of the account", "the same user id in another account", "another user of another account")


def stranger(callers: Callable[..., Caller], victim: Victim, who: str) -> Caller:
    match who:
        case "another user of the account":
            return callers(account=victim.caller.account)
        case "the same user id in another account":
            return callers(user=victim.caller.user)
    return callers()


def forged(machine: bool = False) -> pb.Feedback:
    origin = pb.FEEDBACK_ORIGIN_MACHINE if machine else pb.FEEDBACK_ORIGIN_USER
    return pb.Feedback(turn_id="" if machine else "t1", text="forged", confidence=1, origin=origin)


def query() -> list[pb.ContextQuery]:
    return [pb.ContextQuery(query=SECRET)]


Attempts = Callable[[Victim, str], Sequence[Message]]
ATTEMPTS: dict[str, Attempts] = {
    "SubmitTurn": lambda v, s: [
        pb.SubmitTurnRequest(session=s, turn_id="t1", fingerprint=pb.TurnFingerprint(topics=["forged"])),
        pb.SubmitTurnRequest(session=s, turn_id="t1", summary=pb.TurnSummary(notes="forged")),
        pb.SubmitTurnRequest(session=s, turn_id="t1", extract=True),
    ],
    "ListTurns": lambda v, s: [
        pb.ListTurnsRequest(session=s),
        pb.ListTurnsRequest(session=s, page_token=v.tokens["ListTurns"]),
    ],
    "LoadTurnContext": lambda v, s: [
        pb.LoadTurnContextRequest(
            session=s,
            current_turn_id="t1",
            audience=audience,  # type: ignore[arg-type]  # a number of the enum
            last_turns=20,
            ctx_retrieval_queries=query(),
            render=True,
        )
        for audience in pb.ContextAudience.values()
        if audience
    ],
    "SetTurnSelection": lambda v, s: [
        pb.SetTurnSelectionRequest(
            session=s,
            selection=pb.TurnSelection(
                turn_ids=["t1", "t2"], local_memories_turn_ids=["t1"], memory_bucket_ids=[v.bucket]
            ),
            offer=offer,
        )
        for offer in ("", v.offer)
    ],
    "ListAssistantSignals": lambda v, s: [
        pb.ListAssistantSignalsRequest(keys=keys, session=session, page_token=token)
        for keys in ((), (SECRET,))
        for session in ("", s)
        for token in ("", v.tokens["ListAssistantSignals"])
    ],
    "SubmitFeedback": lambda v, s: [
        pb.SubmitFeedbackRequest(session=s, feedback=forged()),
        pb.SubmitFeedbackRequest(session=s, feedback=forged(machine=True)),
        pb.SubmitFeedbackRequest(session=s, feedback=forged(machine=True), match_queries=query()),
    ],
    "ListFeedback": lambda v, s: [
        pb.ListFeedbackRequest(),
        pb.ListFeedbackRequest(page_token=v.tokens["ListFeedback"]),
        pb.ListFeedbackRequest(page_size=1, page_token=v.tokens["ListFeedback"]),
        pb.ListFeedbackRequest(session=s, turn_ids=["t1"]),
    ],
    "ListTurnArtifacts": lambda v, s: [
        pb.ListTurnArtifactsRequest(tags=[tag], session=session, page_token=token)
        for tag in (*ARTIFACTS, f"mem:bucket:{v.bucket}")
        for session in ("", s)
        for token in ("", v.tokens["ListTurnArtifacts"])
    ],
    "ListMemoryBuckets": lambda v, s: [pb.ListMemoryBucketsRequest(session=s, show_disabled=True)],
    "UpdateMemoryBucket": lambda v, s: [
        pb.UpdateMemoryBucketRequest(
            bucket=pb.MemoryBucket(session=s, bucket_id=v.bucket, name="forged", state=pb.BUCKET_STATE_DISABLED),
            update_mask=FieldMask(paths=["name", "state"]),
        )
    ],
}
# Lists over all sessions of the user, who has none.
OF_ALL_SESSIONS = {"ListAssistantSignals", "ListFeedback", "ListTurnArtifacts"}
REFUSED = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)


def attempts(victim: Victim, session: str) -> Iterator[tuple[str, Message]]:
    """Every call on the victim's names: as the table says it, and of a method that it lacks by the names of fields."""
    for method in pb.DESCRIPTOR.services_by_name["TurnMemoryService"].methods:
        make = ATTEMPTS.get(method.name)
        names = {"session": [session], "turn_id": ["t1"]}
        requests = named_requests(method, names) if make is None else make(victim, session)
        yield from ((method.name, request) for request in requests)


@pytest.mark.parametrize("who", STRANGERS)
async def test_a_stranger_sees_and_changes_nothing(callers: Callable[..., Caller], victim: Victim, who: str) -> None:
    before = await victim.state()
    assert all(SECRET.encode() in one.SerializeToString() for one in before[:4])
    other = stranger(callers, victim, who)
    for method, request in (each for name in victim.names for each in attempts(victim, name)):
        try:
            answer = await getattr(other.turns, method)(request)
        except grpc.aio.AioRpcError as error:
            refused = error.code() in REFUSED if method in ATTEMPTS else is_about_the_name(error)
            assert refused, f"{method}: {error}"
            assert SECRET not in (error.details() or "")
        else:
            assert method in OF_ALL_SESSIONS, f"{method} answered {answer}"
            if method == "ListFeedback":
                assert answer.counts == pb.FeedbackCounts()
                answer.ClearField("counts")
            assert answer.ByteSize() == 0, f"{method} answered {answer}"
    assert await victim.state() == before


@pytest.mark.parametrize("who", STRANGERS)
async def test_a_stranger_with_the_same_names_sees_and_changes_their_own(
    callers: Callable[..., Caller], victim: Victim, who: str
) -> None:
    before = await victim.state()
    other = stranger(callers, victim, who)
    session = await other.session(session_id=victim.session)
    for name in ("t1", "t2"):
        await fingerprinted(other, session, name, "Find a piano", assistant_signals=[signal("piano", "black")])
    for method, request in attempts(victim, session):
        try:
            answer = await getattr(other.turns, method)(request)
        except grpc.aio.AioRpcError as error:
            assert error.code() in REFUSED, f"{method}: {error}"
        else:
            assert SECRET.encode() not in answer.SerializeToString(), method
    assert await victim.state() == before
    # What was done was done to the stranger's own.
    own = await turn_of(other, session, "t1")
    assert list(own.fingerprint.topics) == ["forged"] and own.summary.notes == "forged"


async def test_an_offer_of_another_user_gives_nothing_to_choose(callers: Callable[..., Caller], victim: Victim) -> None:
    other = callers(account=victim.caller.account)
    session = await other.session(session_id=victim.session)
    failed = await failure(select(other, session, victim.offer, turn_ids=["t1"]))
    # It counts more changes than this session has seen.
    assert failed.fields == ["offer"]
    for number in range(5):
        await fingerprinted(other, session, f"own{number}", "mine")
    wanted = {"turn_ids": ["t1", "own1"], "memory_bucket_ids": [victim.bucket]}
    chosen = await select(other, session, victim.offer, **wanted)
    assert not chosen.selection.turn_ids and not chosen.selection.memory_bucket_ids
    assert set(chosen.dropped) == {"t1", "own1", victim.bucket}


async def test_a_page_token_of_another_user_opens_nothing(callers: Callable[..., Caller], victim: Victim) -> None:
    other = callers(account=victim.caller.account)
    session = await other.session(session_id=victim.session)
    for number in range(3):
        await fingerprinted(other, session, f"own{number}", "mine", assistant_signals=[signal("mine", 1)])
        await react(other, session, f"own{number}", text="mine")
    for method, request in first_pages(session):
        request.page_token = victim.tokens[method]
        of = {"ListAssistantSignals": "turns", "ListTurns": "turns", "ListFeedback": "feedback"}.get(
            method, "artifacts"
        )
        found = await paged(getattr(other.turns, method), request, of)
        assert all(one.turn_id.startswith("own") for one in found), method
        assert SECRET not in str(found)


async def test_a_request_id_of_another_user_gives_no_answer(callers: Callable[..., Caller], victim: Victim) -> None:
    request = pb.SubmitTurnRequest(
        session=victim.session, turn_id="t1", summary=pb.TurnSummary(notes=SECRET), request_id="r-1"
    )
    await victim.caller.turns.SubmitTurn(request)
    other = callers(account=victim.caller.account)
    assert (await failure(other.turns.SubmitTurn(request))).resource == ("session", victim.session)
