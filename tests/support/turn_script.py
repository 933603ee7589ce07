"""The scripted conversations of the golden texts, and how one replays them through the calls that agents make."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import common_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_schemas.turns.fingerprint import LISTS, Query
from runekeep_schemas.turns.selection import Offer
from runekeep_server.turns.search import Match, Matches
from runekeep_storage.database import Space
from runekeep_storage.store import Store
from tests.support.callers import Caller, failure
from tests.support.turn_calls import submit
from tests.support.turns import load, select, signal

FOLDER = Path(__file__).parents[1] / "golden" / "turn_memory"
CONVERSATION = "bicycles"
"""The one that texts are of."""
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class GoldenText:
    """One text, and all that it depends on: see the last part of `conversation.yaml`."""

    file: str
    audience: str
    current_turn: str
    at: str
    selections: Sequence[str]
    last_turns: int
    queries: Sequence[dict[str, Any]]
    now: str

    @property
    def text(self) -> str:
        """Without the newline at the end of the file."""
        written = (FOLDER / self.file).read_text(encoding="utf-8")
        assert written.endswith("\n") and not written.endswith("\n\n"), f"{self.file}: one newline at its end"
        return written[:-1]


@dataclass(frozen=True, slots=True)
class Script:
    """`conversations`: their steps, each a mapping of its kind to what is done, in the order in which they run."""

    user: str
    conversations: dict[str, list[dict[str, Any]]]
    texts: list[GoldenText]

    @classmethod
    def read(cls) -> "Script":
        raw = yaml.safe_load((FOLDER / "conversation.yaml").read_text(encoding="utf-8"))
        steps = {name: conversation["steps"] for name, conversation in raw["conversations"].items()}
        return cls(raw["user"], steps, [GoldenText(**one) for one in raw["texts"]])

    def of_kind(self, kind: str) -> list[Any]:
        """What the steps of one kind say, over all conversations."""
        return [step[kind] for steps in self.conversations.values() for step in steps if kind in step]


class KnownHits:
    """In place of the search: context queries find what the script says. `asked`: the queries as they came."""

    def __init__(self, queries: Sequence[dict[str, Any]]) -> None:
        self._queries = queries
        self.asked: list[Query] = []

    @property
    def expected(self) -> list[Query]:
        return [
            Query("" if one["target"] == "unspecified" else one["target"], one["query"], one.get("reason", ""))
            for one in self._queries
        ]

    async def matches(self, store: Store, space: Space, session_id: str, queries: Sequence[Query], but: str) -> Matches:
        self.asked += queries
        found: dict[str, Match] = {}
        for query in queries:
            (known,) = (one for one in self._queries if one["query"] == query.query)
            for turn_id in known["hits"]:
                before = found.get(turn_id, Match((), 1.0))
                found[turn_id] = Match((*before.queries, query.query), 1.0)
        return Matches(found)


@dataclass(slots=True)
class Replay:
    """Runs steps for one text; what they say of themselves is asserted as they run. `set_clock` takes microseconds."""

    caller: Caller
    script: Script
    golden: GoldenText
    set_clock: Callable[[int], None]
    _said: dict[str, int] = field(default_factory=dict)

    async def run(self) -> None:
        """All conversations in their order, the last one up to the point of the text."""
        for name, steps in self.script.conversations.items():
            await self.caller.session(session_id=name)
            for step in steps:
                ((kind, what),) = step.items()
                if kind == "point":
                    if name == CONVERSATION and what == self.golden.at:
                        return
                    continue
                await getattr(self, f"_{kind}")(name, what)
        raise AssertionError(f"there is no point {self.golden.at}")

    async def shown(self) -> Any:
        """What LoadTurnContext answers at the time of the text."""
        self._tell(self.golden.now)
        queries = [
            pb.ContextQuery(
                target=pb.ContextQueryTarget.Value(f"CONTEXT_QUERY_TARGET_{one['target'].upper()}"),
                query=one["query"],
                reason=one.get("reason", ""),
            )
            for one in self.golden.queries
        ]
        return await load(
            self.caller,
            CONVERSATION,
            self.golden.current_turn,
            self.golden.audience,
            last_turns=self.golden.last_turns,
            ctx_retrieval_queries=queries,
            render=True,
        )

    def _tell(self, at: str) -> None:
        self.set_clock((datetime.fromisoformat(at) - _EPOCH) // timedelta(microseconds=1))

    async def _message(self, conversation: str, what: dict[str, Any]) -> None:
        self._tell(what["at"])
        message = common_pb2.Message(
            turn_id=what["turn"],
            role=common_pb2.Role.Value(f"ROLE_{what['role'].upper()}"),
            parts=[_part(one) for one in what["parts"]],
            create_time=_timestamp(what["at"]),
        )
        self._said[conversation] = self._said.get(conversation, 0) + 1
        (added,) = (await self.caller.add(conversation, message)).messages
        assert added.sequence == self._said[conversation]

    async def _submit(self, conversation: str, what: dict[str, Any]) -> None:
        fields: dict[str, Any] = {"fingerprint": _fingerprint(what["fingerprint"])}
        if "summary" in what:
            fields["summary"] = pb.TurnSummary(**what["summary"])
        await submit(self.caller, conversation, what["turn"], **fields)
        offer = (await load(self.caller, conversation, what["turn"])).offer
        assert Offer.decode(offer).memory_version == what["version"], what["turn"]

    async def _feedback(self, conversation: str, what: dict[str, Any]) -> None:
        self._tell(what["at"])
        reaction = what["reaction"]
        feedback = pb.Feedback(
            turn_id=what.get("turn", ""),
            origin=pb.FeedbackOrigin.Value(f"FEEDBACK_ORIGIN_{what['origin'].upper()}"),
            reaction=pb.Reaction.Value(f"REACTION_{'UNSPECIFIED' if reaction == 'none' else reaction.upper()}"),
            text=what["text"],
            confidence=what.get("confidence", 0.0),
            from_turn_id=what.get("from_turn", ""),
        )
        request = pb.SubmitFeedbackRequest(session=conversation, feedback=feedback)
        if what.get("refused"):
            before = await self._reactions(conversation)
            assert (await failure(self.caller.turns.SubmitFeedback(request))).code.name == "INVALID_ARGUMENT", what
            assert await self._reactions(conversation) == before
            return
        stored = (await self.caller.turns.SubmitFeedback(request)).feedback
        assert stored.turn_id == what.get("about", what.get("turn"))
        assert stored.create_time == _timestamp(what["at"])

    async def _reactions(self, conversation: str) -> list[Any]:
        request = pb.ListFeedbackRequest(session=conversation)
        return list((await self.caller.turns.ListFeedback(request)).feedback)

    async def _select(self, conversation: str, what: dict[str, Any]) -> None:
        if what["name"] not in self.golden.selections:
            return
        offer = (await load(self.caller, conversation, what["turn"], "reconciler", last_turns=20)).offer
        assert Offer.decode(offer).memory_version == what["memory_version"]
        ids = {name: what[name] for name in ("local_memories_turn_ids", "turn_ids", "memory_bucket_ids")}
        answer = await select(self.caller, conversation, offer, current_turn_id=what["turn"], **ids)
        assert not answer.dropped
        assert {name: list(getattr(answer.selection, name)) for name in ids} == ids


def _timestamp(at: str) -> Timestamp:
    made = Timestamp()
    made.FromJsonString(at)
    return made


def _part(what: dict[str, Any]) -> common_pb2.Part:
    ((kind, said),) = what.items()
    match kind:
        case "text":
            return common_pb2.Part(text=common_pb2.TextPart(text=said))
        case "image":
            return common_pb2.Part(image=common_pb2.ImagePart(**said))
        case "context":
            return common_pb2.Part(context=common_pb2.ContextPart(**said))
        case "tool":
            status = common_pb2.ToolStatus.Value(f"TOOL_STATUS_{said['status'].upper()}")
            return common_pb2.Part(
                tool=common_pb2.ToolPart(tool_name=said["name"], status=status, output=said.get("output", ""))
            )
    raise ValueError(f"a part is none of kind {kind}")


def _fingerprint(what: dict[str, Any]) -> pb.TurnFingerprint:
    fields: dict[str, Any] = dict(what)
    for name in LISTS:
        fields[name] = [signal(**one) for one in what.get(name, ())]
    if "made_at" in fields:
        fields["made_time"] = _timestamp(fields.pop("made_at"))
    return pb.TurnFingerprint(**fields)
