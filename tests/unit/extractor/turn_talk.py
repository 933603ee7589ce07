"""Turns for tests of what is made of them: messages, candidates, and what a model may answer."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_extractor.engine.turn_records import fingerprint_to_wire, signal_from_wire
from runekeep_extractor.pipeline.engine import ModelEngine
from runekeep_extractor.settings import AnthropicSettings
from runekeep_schemas.turns.fingerprint import Fingerprint, Signal
from tests.doubles.fixed_job import FixedJob, message
from tests.doubles.messages_api import MessagesApi

TURN = "turn-7f3a"
SPEC = "Products and sellers that the assistant recommends. key: product."
FENCED = re.compile(r"<(\w+-[0-9a-f]{16})>\n(.*?)\n</\1>", re.DOTALL)


def said(sequence: int, text: str, turn_id: str = TURN, *, assistant: bool = False) -> common_pb2.Message:
    role = common_pb2.ROLE_ASSISTANT if assistant else common_pb2.ROLE_USER
    made = message(sequence, text, role=role)
    made.turn_id = turn_id
    return made


CONVERSATION = [
    said(5, "Find me a hotel in Lisbon for at most 120 euros, and please no hostels. I travel with my dog."),
    said(6, "I recommend Hotel Aurora, 95 euros a night, dogs welcome.", assistant=True),
]


def candidate(turn_id: str, fingerprint: Fingerprint | None = None, *, view: str = "", at: int = 1) -> pb.CandidateTurn:
    """A turn that began at minute `at`."""
    turn = pb.Turn(turn_id=turn_id)
    turn.start_time.FromDatetime(datetime(2026, 3, 5, 8, at % 60, tzinfo=UTC))
    if fingerprint is not None:
        turn.fingerprint.CopyFrom(fingerprint_to_wire(fingerprint))
    return pb.CandidateTurn(turn=turn, compressed_view=view)


EARLIER = candidate(
    "turn-1aa0",
    Fingerprint(
        "turn-1aa0",
        objective="Plan a trip to Portugal.",
        topics=("travel",),
        assertions=(Signal("budget.total", {"max": 900}, "must", "objective", "trip"),),
        assistant_signals=(Signal("product", "RailPass", "recommend"),),
    ),
    view="user: Plan a trip to Portugal | answer: Gladly.",
)


def turn_job(
    messages: Sequence[common_pb2.Message] = CONVERSATION,
    earlier: Sequence[pb.CandidateTurn] = (EARLIER,),
    *,
    there: Fingerprint | None = None,
    **options: Any,
) -> FixedJob:
    """A TURN_FINGERPRINT. `there`: what is known of the turn already."""
    return FixedJob(
        messages,
        kind=task_service_pb2.TASK_KIND_TURN_FINGERPRINT,
        turns=[*earlier, candidate(TURN, there, at=9)],
        turn_id=TURN,
        long_term=(),
        execution=(),
        **options,
    )


def signal(key: str, form: str, values: Sequence[Any], severity: str, **more: Any) -> dict[str, Any]:
    return {
        "key": key,
        "form": form,
        "values": list(values),
        "severity": severity,
        "scope": "unsaid",
        "applies_to": "",
        **more,
    }


NOTED = {
    "objective": "Find a hotel in Lisbon.",
    "topics": ["hotel", "Lisbon"],
    "assertions": [signal("budget.cap", "max", [120], "must", scope="objective", applies_to="hotel")],
    "exceptions": [signal("lodging.kind", "is", ["hostel"], "do_not")],
    "facts": [signal("travels_with", "is", ["dog"], "high", scope="conversation")],
}
SUMMARY = {
    "user_inquiry": "A hotel in Lisbon below 120 euros.",
    "user_message_description": "",
    "assistant_answer": "Hotel Aurora for 95 euros.",
    "delivered_to_user": "",
    "done": ["found a hotel"],
    "not_done": ["nothing is booked"],
    "assumptions": [],
    "risks": [],
    "notes": "",
}


def answered(**changes: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {**NOTED, "ctx_retrieval_queries": [], "summary": SUMMARY}
    return whole | changes


def plain(signals: Sequence[pb.TurnSignal]) -> list[tuple[Any, ...]]:
    """Signals as tuples: key, value, severity, scope, applies_to."""
    names = {number: pb.SignalSeverity.Name(number)[16:].lower() for number in pb.SignalSeverity.values()}
    read = [(one, signal_from_wire("facts", one)) for one in signals]
    return [(one.key, record.value, names[one.severity], record.scope, one.applies_to) for one, record in read]


def outside(prompt: str) -> str:
    """A prompt without what stands between fences."""
    return FENCED.sub("", prompt)


def inside(prompt: str, name: str) -> str:
    """What stands in the fence of that name; empty where there is none."""
    return next((body for mark, body in FENCED.findall(prompt) if mark.rpartition("-")[0] == name), "")


def spent(job: FixedJob) -> Mapping[str, int]:
    return {entry.phase: entry.calls for entry in job.spent}


def engine_at(api: MessagesApi, *, most_tokens: int = 60_000, **options: Any) -> ModelEngine:
    values = {"api_key": "key", "base_url": api.url, "model": "some-model", "max_tokens": 4000, "timeout": 20.0}
    switches = {"structured_output": "on", "tools": "on"}
    settings = AnthropicSettings(**(values | switches | options))
    return ModelEngine(settings, max_retries=0, patience=0.0, most_tokens=most_tokens)
