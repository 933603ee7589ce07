"""Turns as callers make and read them: the few calls that tests of turn memory begin with."""

from typing import Any

from google.protobuf.json_format import ParseDict

from runekeep.v1 import common_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from tests.support.callers import Caller, said


def in_turn(turn_id: str, message: common_pb2.Message) -> common_pb2.Message:
    message.turn_id = turn_id
    return message


async def talk(caller: Caller, session: str, turn_id: str, asked: str = "a question", answered: str = "") -> None:
    """Adds a turn: what the user asked, and what the assistant answered unless that is empty."""
    messages = [in_turn(turn_id, said(asked))]
    if answered:
        messages.append(in_turn(turn_id, said(answered, role=common_pb2.ROLE_ASSISTANT)))
    await caller.add(session, *messages)


def signal(key: str, value: Any, severity: int = 0, **fields: Any) -> pb.TurnSignal:
    """`value`: any JSON."""
    made = pb.TurnSignal(key=key, severity=severity, **fields)  # type: ignore[arg-type]  # a number of the enum
    ParseDict(value, made.value)
    return made


async def submit(caller: Caller, session: str, turn_id: str, **fields: Any) -> Any:
    return await caller.turns.SubmitTurn(pb.SubmitTurnRequest(session=session, turn_id=turn_id, **fields))


async def extract(caller: Caller, session: str, turn_id: str, **fields: Any) -> str:
    """Id of the task that is to find out what the turn said."""
    return str((await submit(caller, session, turn_id, extract=True, **fields)).task_id)


async def turn_of(caller: Caller, session: str, turn_id: str) -> Any:
    return (await caller.turns.GetTurn(pb.GetTurnRequest(session=session, turn_id=turn_id))).turn


async def reconcile(caller: Caller, session: str) -> str:
    """Id of the task that is to fold what is new into buckets."""
    request = pb.ReconcileMemoryBucketsRequest(session=session)
    return str((await caller.turns.ReconcileMemoryBuckets(request)).task_id)


async def buckets_of(caller: Caller, session: str) -> list[Any]:
    """All buckets of the session, those that are disabled among them."""
    request = pb.ListMemoryBucketsRequest(session=session, show_disabled=True)
    return list((await caller.turns.ListMemoryBuckets(request)).buckets)
