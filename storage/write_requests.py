"""Requests to a writer, and which of them are done as one.

A writer's group runs its requests one after another. Joint ones, each of which is the same function with an item of its
own, are one call of that function where they follow each other and are of one account: their statements are of many
rows then. Should that call fail, the group runs once more, each request by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from storage import deadline
from storage.database import JointWork, Space, Tx
from storage.errors import DeadlinePassed
from storage.outcomes import Outcome

Item = TypeVar("Item")
Answer = TypeVar("Answer")


# Not frozen, nor is the next one: both are made for every write, and to make a frozen one takes three times as long.
@dataclass(slots=True, eq=False)
class Joint(Generic[Item, Answer]):
    """A request's share of a call that it may have in common with others."""

    work: JointWork[Item, Answer]
    space: Space
    item: Item

    async def alone(self, tx: Tx) -> Answer:
        """Raises the error that it is given."""
        (outcome,) = await self.work(tx, [(self.space, self.item)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@dataclass(slots=True, eq=False)
class Request:
    """`run`: all of it by itself. `account`: the only one of which it changes rows, if it is confined to one; `until`:
    see `storage.deadline`."""

    run: Callable[[Tx], Awaitable[Any]]
    account: str | None
    future: "asyncio.Future[Any]"
    until: float | None
    joint: Joint[Any, Any] | None = None


def in_parts(requests: Sequence[Request]) -> Iterator[Sequence[Request]]:
    """The requests in their order, those together that are to be one call."""
    start = 0
    while start < len(requests):
        end = end_of_part(requests, start)
        yield requests[start:end]
        start = end


def end_of_part(requests: Sequence[Request], start: int) -> int:
    """Behind the last one that is to be one call with the one at `start`."""
    first = requests[start].joint
    end = start + 1
    while first is not None and end < len(requests):
        joint = requests[end].joint
        if joint is None or joint.work is not first.work or joint.space.account != first.space.account:
            break
        end += 1
    return end


def in_time(requests: Iterable[Request], outcomes: list[Outcome]) -> list[Request]:
    """Those that are still waited for. What becomes of those that are too late is added to `outcomes`."""
    wanted = []
    for request in requests:
        # Who cancelled has a future that is done.
        if request.future.done():
            continue
        if deadline.is_over(request.until):
            outcomes.append((request.future, None, DeadlinePassed()))
        else:
            wanted.append(request)
    return wanted


async def run(tx: Tx, requests: Sequence[Request]) -> list[Outcome]:
    """What becomes of one request, or of those that are one call. What is raised is of all of them."""
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
