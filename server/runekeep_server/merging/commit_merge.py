"""Merges operations into the memories that they touch: those of an output, and those of it that were accepted later."""

from collections.abc import Sequence
from dataclasses import dataclass

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_schemas.policy import Plan
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.merging.counts import BatchCounts
from runekeep_server.merging.operations import Merger, Rules
from runekeep_server.merging.outcome import Outcome
from runekeep_server.merging.routing import Router
from runekeep_server.merging.workspace import Draft, Workspace
from runekeep_storage.database import Space, Tx
from runekeep_storage.memories.memories import LATEST
from runekeep_storage.records import Message


@dataclass(frozen=True, slots=True)
class CommitContext:
    """What the operations of a commit are merged with: the rules of the server, and session, batch, plan and counts of
    the commit."""

    registry: Registry
    rules: Rules
    session_id: str
    batch: Sequence[Message]
    plan: Plan
    counts: BatchCounts


async def merge_operations(
    tx: Tx,
    space: Space,
    context: CommitContext,
    operations: Sequence[pb.MemoryOperation],
    revision: int = LATEST,
) -> tuple[list[Draft], Outcome]:
    """Returns the memories of a revision that the operations touch, with the operations applied, and the outcome."""

    async def merge(tx: Tx) -> tuple[list[Draft], Outcome]:
        plan = context.plan
        workspace = Workspace(tx, space, revision)
        merger = Merger(
            context.registry,
            Router(plan, context.batch),
            workspace,
            space,
            context.session_id,
            context.rules,
            context.counts,
        )
        if plan.allow_self:
            await merger.initial_memories(plan.long_term_types)
        outcome = await merger.merge(operations)
        await merger.drop_empty_memories(plan.long_term_types if plan.allow_self else ())
        return list(workspace.drafts.values()), outcome

    return await tx.compute(merge)
