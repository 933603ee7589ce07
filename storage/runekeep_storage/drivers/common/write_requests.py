"""Requests to a writer, and which of them run as one call.

A writer's group runs its requests one after another. Joint requests share one function, each with its own item.
Consecutive joint requests of one account become one call of that function, whose statements handle many rows. If that
call fails, the group runs once more with each request by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from runekeep_storage import deadline
from runekeep_storage.database import JointWork, Space, Tx
from runekeep_storage.drivers.common.write_outcomes import Outcome
from runekeep_storage.errors import DeadlinePassed

Item = TypeVar("Item")
Answer = TypeVar("Answer")


# Neither this class nor the next is frozen: every write creates both, and a frozen one takes three times as long.
@dataclass(slots=True, eq=False)
class Joint(Generic[Item, Answer]):
    """A request's share of a batched call."""

    work: JointWork[Item, Answer]
    space: Space
    item: Item

    async def alone(self, tx: Tx) -> Answer:
        """Runs the item by itself. Raises the error that `work` returns for it."""
        (outcome,) = await self.work(tx, [(self.space, self.item)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@dataclass(slots=True, eq=False)
class Request:
    """A request to a writer. `run`: runs it by itself. `account`: the only account whose rows it changes; None if it is
    not confined to one. `until`: see `runekeep_storage.deadline`."""

    run: Callable[[Tx], Awaitable[Any]]
    account: str | None
    future: "asyncio.Future[Any]"
    until: float | None
    joint: Joint[Any, Any] | None = None


def in_parts(requests: Sequence[Request]) -> Iterator[Sequence[Request]]:
    """Yields the requests in order, grouped into those that become one call."""
    start = 0
    while start < len(requests):
        end = end_of_part(requests, start)
        yield requests[start:end]
        start = end


def end_of_part(requests: Sequence[Request], start: int) -> int:
    """Returns the index after the last request that joins the call of the request at `start`."""
    first = requests[start].joint
    end = start + 1
    while first is not None and end < len(requests):
        joint = requests[end].joint
        if joint is None or joint.work is not first.work or joint.space.account != first.space.account:
            break
        end += 1
    return end


def in_time(requests: Iterable[Request], outcomes: list[Outcome]) -> list[Request]:
    """Returns the requests that callers still wait for. Adds the outcomes of late ones to `outcomes`."""
    wanted = []
    for request in requests:
        # The future of a cancelled call is done.
        if request.future.done():
            continue
        if deadline.is_over(request.until):
            outcomes.append((request.future, None, DeadlinePassed()))
        else:
            wanted.append(request)
    return wanted


async def run(tx: Tx, requests: Sequence[Request]) -> list[Outcome]:
    """Returns the outcomes of one request, or of those that become one call. An exception concerns all of them."""
    if len(requests) == 1:
        return [(requests[0].future, await requests[0].run(tx), None)]
    joints = [request.joint for request in requests if request.joint is not None]
    found = await joints[0].work(tx, [(joint.space, joint.item) for joint in joints])
    if not len(found) == len(joints) == len(requests):
        raise RuntimeError(f"{len(requests)} requests were given {len(found)} outcomes")
    return [
        (request.future, None, outcome) if isinstance(outcome, Exception) else (request.future, outcome, None)
        for request, outcome in zip(requests, found, strict=True)
    ]
