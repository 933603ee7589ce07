"""Plans what accepting the operations of a proposal would do to the memories as they are now.

Operations are merged as those of a commit. In addition, nothing that a reviewer has not seen is lost: an operation
stays open if what it would delete or replace changed since it was proposed, or if it would delete a memory that
GetProposal does not show as deleted.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from runekeep.v1 import extractor_service_pb2
from runekeep.v1 import proposal_service_pb2 as pb
from runekeep_schemas.memory_types.model import VIEW_FIELDS
from runekeep_schemas.policy import Plan
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.merging.commit_merge import CommitContext, merge_operations
from runekeep_server.merging.counts import BatchCounts
from runekeep_server.merging.effects import Effect, can_lose_text
from runekeep_server.merging.operations import Rules
from runekeep_server.merging.proposed import operation_of
from runekeep_server.merging.workspace import Draft
from runekeep_server.wire.basics import plain_value, plain_values
from runekeep_storage.database import Space, Tx
from runekeep_storage.memories import memories
from runekeep_storage.proposals import proposals
from runekeep_storage.proposals.proposals import Proposal, ProposedOperation
from runekeep_storage.records import Memory
from runekeep_storage.sessions import archives, sessions
from runekeep_storage.spaces import spaces

CHANGED_SINCE: Final = "changed_since"
NOT_SHOWN: Final = "delete_not_shown"
_NOTHING_TO_DELETE: Final = frozenset({"not_found", "review_asked"})
"""Reasons why a superseded memory stays, whatever else is decided: the operation is applied without the delete."""

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProposalPlan:
    """What the planned operations of a proposal would do. `newest`: the revision of the space that it is based on.
    `effects` and `problems` by number; an operation with a problem has no effect."""

    proposal: Proposal
    newest: int
    planned: tuple[int, ...] = ()
    drafts: list[Draft] = field(default_factory=list)
    effects: dict[int, list[Effect]] = field(default_factory=dict)
    problems: dict[int, pb.ProposalProblem] = field(default_factory=dict)


async def plan_proposal(
    tx: Tx,
    space: Space,
    registry: Registry,
    rules: Rules,
    task_id: str,
    numbers: Collection[int] = (),
    edited: ProposedOperation | None = None,
) -> ProposalPlan:
    """Plans the open operations of a proposal, or those of `numbers` that are open. `edited`: stands in the place of
    the stored one; it is based on the newest revision. Raises NotFound."""
    proposal = await proposals.get(tx, space, task_id)
    newest, _ = await spaces.revisions(tx, space)
    if edited is not None:
        proposal = proposal.with_operations([edited])
    archive = await archives.get(tx, space, proposal.session_id, proposal.archive_index)
    batch = await sessions.messages_between(
        tx, space, proposal.session_id, archive.first_sequence, archive.last_sequence
    )
    # Without counts: the commit counted the records of the batch.
    context = CommitContext(
        registry, rules, proposal.session_id, batch, Plan.from_json(json.loads(proposal.plan)), BatchCounts()
    )
    everything = [one for one in proposal.operations if one.is_open]
    chosen = [one for one in everything if not numbers or one.number in numbers]
    plan = await _plan(tx, space, context, proposal, newest, chosen, edited)
    if len(chosen) == len(everything) or not any(_side_deletes(plan, one) for one in chosen):
        return plan
    # GetProposal plans all open operations together, and one of them may keep a memory that another would delete.
    shown = await _plan(tx, space, context, proposal, newest, everything, edited)
    unseen: dict[int, pb.ProposalProblem] = {}
    while True:
        more = {
            one.number: shown.problems.get(one.number) or _problem(one, NOT_SHOWN)
            for one in chosen
            if not _side_deletes(plan, one) <= _side_deletes(shown, one)
        }
        if not more:
            return plan
        # Without these, another one may delete what they kept.
        unseen |= more
        plan = await _plan(tx, space, context, proposal, newest, chosen, edited, unseen)


async def _plan(
    tx: Tx,
    space: Space,
    context: CommitContext,
    proposal: Proposal,
    newest: int,
    chosen: Sequence[ProposedOperation],
    edited: ProposedOperation | None,
    known: Mapping[int, pb.ProposalProblem] = MappingProxyType({}),
) -> ProposalPlan:
    """Plans the chosen operations together, without those that have a problem. `known`: problems found before."""
    problems = dict(known)
    fitting: list[tuple[ProposedOperation, extractor_service_pb2.MemoryOperation]] = []
    for one in chosen:
        if one.number in problems:
            continue
        operation = operation_of(one)
        if one.action == "delete" and not await _exists(tx, space, one):
            # Somebody deleted the memory: nothing is left to do.
            continue
        if one is not edited and await _is_changed_since(tx, space, context.registry, proposal, one, operation):
            problems[one.number] = _problem(one, CHANGED_SINCE)
        else:
            fitting.append((one, operation))
    while True:
        drafts, outcome = await merge_operations(tx, space, context, [operation for _, operation in fitting])
        effects: dict[int, list[Effect]] = {one.number: [] for one in chosen}
        for effect in outcome.effects:
            effects[fitting[effect.operation_index][0].number].append(effect)
        for entry in [*outcome.rejected, *outcome.skipped]:
            number = fitting[entry["operation_index"]][0].number
            problems[number] = pb.ProposalProblem(number=number, reason=entry["reason"], message=entry["message"])
        plan = ProposalPlan(proposal, newest, tuple(one.number for one in chosen), drafts, effects, problems)
        # The merge applies these operations, so they are left out and the others are merged again.
        left_out = {
            entry["operation_index"]: _problem(fitting[entry["operation_index"]][0], entry["reason"])
            for entry in outcome.not_superseded
            if entry["reason"] not in _NOTHING_TO_DELETE
        }
        for index, (one, _) in enumerate(fitting):
            if one is not edited and not _side_deletes(plan, one) <= set(one.targets):
                left_out[index] = _problem(one, NOT_SHOWN)
        if not left_out:
            return plan
        problems |= {problem.number: problem for problem in left_out.values()}
        fitting = [pair for index, pair in enumerate(fitting) if index not in left_out]


def _side_deletes(plan: ProposalPlan, one: ProposedOperation) -> set[str]:
    """Returns the URIs of memories that a write or an edit deletes, because the memory that it writes supersedes
    them."""
    if one.action == "delete":
        return set()
    return {
        effect.uri
        for effect in plan.effects[one.number]
        if effect.changed and effect.after is None and not effect.is_move
    }


def _problem(one: ProposedOperation, reason: str) -> pb.ProposalProblem:
    if reason == CHANGED_SINCE:
        what = "a memory that it would change or delete has changed since"
    elif reason == NOT_SHOWN:
        what = "it would delete a memory that the proposal does not show as deleted"
    else:
        what = "it would delete a superseded memory, which is not possible together with the operations before it"
    advice = "refuse it" if one.action == "delete" else "edit it to what is right now, or refuse it"
    if reason not in (CHANGED_SINCE, NOT_SHOWN):
        advice = f"decide about those first, {advice}"
    return pb.ProposalProblem(number=one.number, reason=reason, message=f"{what}: {advice}")


async def _exists(tx: Tx, space: Space, one: ProposedOperation) -> bool:
    """Returns whether one of the memories that a delete is about exists."""
    for uri in one.targets:
        now, _ = await memories.with_newest_version(tx, space, uri)
        if now is not None:
            return True
    return False


async def _is_changed_since(
    tx: Tx,
    space: Space,
    registry: Registry,
    proposal: Proposal,
    one: ProposedOperation,
    operation: extractor_service_pb2.MemoryOperation,
) -> bool:
    """Returns whether the operation would lose what was written since it was proposed."""
    whole = _whole_values(operation)
    for uri, target in one.targets.items():
        now, _ = await memories.with_newest_version(tx, space, uri)
        base, _ = await memories.with_newest_version(tx, space, uri, one.base_revision)
        if _version(now) != _version(base):
            base = await _base_after_others(tx, space, proposal, one, uri, base)
        if _version(now) == _version(base):
            continue
        name = one.memory_type
        type = SESSION_SKILLS if name == SESSION_SKILLS.name else registry.get(name)
        if type is None or (target == "write" and one.action == "write" and not type.mergeable):
            # The merge refuses it, or writes it beside the other one.
            continue
        losable = {field.name for field in type.fields if can_lose_text(field)}
        for name in losable if target == "delete" else losable & whole.keys():
            is_lost = target == "delete" or str(whole[name]) != _text(now, name)
            if is_lost and _text(now, name) != _text(base, name):
                return True
    return False


async def _base_after_others(
    tx: Tx, space: Space, proposal: Proposal, one: ProposedOperation, uri: str, base: Memory | None
) -> Memory | None:
    """Returns the memory as the accepted operations before this one left it. It was proposed as what comes after
    them, so their changes are no changes by others."""
    revisions = {
        earlier.revision
        for earlier in proposal.operations
        if earlier.number < one.number and earlier.revision > one.base_revision
    }
    for revision in sorted(revisions):
        before, _ = await memories.with_newest_version(tx, space, uri, revision - 1)
        if _version(before) == _version(base):
            base, _ = await memories.with_newest_version(tx, space, uri, revision)
    return base


def _version(memory: Memory | None) -> int:
    return memory.version if memory is not None else 0


def _whole_values(operation: extractor_service_pb2.MemoryOperation) -> Fields:
    """Returns the values that replace others as a whole, by field."""
    if operation.HasField("write"):
        return plain_values(operation.write.fields)
    return {one.field: plain_value(one.value) for one in operation.edit.patches if one.HasField("value")}


def _text(memory: Memory | None, name: str) -> str:
    return str(json.loads(memory.fields).get(name, "")) if memory is not None else ""


def with_values(
    operation: extractor_service_pb2.MemoryOperation, values: Mapping[str, Any]
) -> extractor_service_pb2.MemoryOperation:
    """Returns a write or an edit with other values, by field (FieldValue)."""
    changed = extractor_service_pb2.MemoryOperation()
    changed.CopyFrom(operation)
    for name, value in values.items():
        if not changed.HasField("write"):
            kept: Sequence[Any] = [one for one in changed.edit.patches if one.field != name]
            del changed.edit.patches[:]
            changed.edit.patches.extend(kept)
            changed.edit.patches.add(field=name, value=value)
        elif name in VIEW_FIELDS:
            setattr(changed.write, name, str(plain_value(value)))
        else:
            changed.write.fields[name].CopyFrom(value)
    return changed
