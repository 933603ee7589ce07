"""Plans what accepting the operations of a proposal would do to the memories as they are now.

Operations are merged as those of a commit. In addition, nothing that a reviewer has not seen is lost: an operation that
would delete a memory, or replace a whole value, is left out if that changed since it was proposed.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from runekeep.v1 import extractor_service_pb2
from runekeep.v1 import proposal_service_pb2 as pb
from runekeep_schemas.memory_types.model import VIEW_FIELDS, MemoryType
from runekeep_schemas.policy import Plan
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.apply.counts import BatchCounts
from runekeep_server.apply.effects import Effect
from runekeep_server.apply.holding import operation_of
from runekeep_server.apply.merging import CommitContext, merge_operations
from runekeep_server.apply.operations import Rules
from runekeep_server.apply.workspace import Draft, current_of
from runekeep_server.wire.basics import plain_value, plain_values
from runekeep_storage.database import Space, Tx
from runekeep_storage.proposals import proposals
from runekeep_storage.proposals.proposals import Proposal, ProposedOperation
from runekeep_storage.records import Memory
from runekeep_storage.sessions import archives, sessions
from runekeep_storage.spaces import spaces

CHANGED_SINCE: Final = "changed_since"

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
    chosen = [one for one in proposal.operations if one.is_open and (not numbers or one.number in numbers)]
    problems: dict[int, pb.ProposalProblem] = {}
    fitting: list[tuple[int, extractor_service_pb2.MemoryOperation]] = []
    for one in chosen:
        operation = operation_of(one)
        uri = "" if one is edited else await _changed_since(tx, space, registry, one, operation)
        if uri:
            what = f"{uri} changed since this was proposed: edit the operation to what is right now, or refuse it"
            problems[one.number] = pb.ProposalProblem(number=one.number, reason=CHANGED_SINCE, message=what)
        else:
            fitting.append((one.number, operation))
    archive = await archives.get(tx, space, proposal.session_id, proposal.archive_index)
    batch = await sessions.messages_between(
        tx, space, proposal.session_id, archive.first_sequence, archive.last_sequence
    )
    # Without counts: the commit counted the records of the batch.
    context = CommitContext(
        registry, rules, proposal.session_id, batch, Plan.from_json(json.loads(proposal.plan)), BatchCounts()
    )
    drafts, outcome = await merge_operations(tx, space, context, [operation for _, operation in fitting])
    for entry in [*outcome.rejected, *outcome.skipped]:
        number = fitting[entry["operation_index"]][0]
        problems[number] = pb.ProposalProblem(number=number, reason=entry["reason"], message=entry["message"])
    effects: dict[int, list[Effect]] = {one.number: [] for one in chosen}
    for effect in outcome.effects:
        effects[fitting[effect.operation_index][0]].append(effect)
    return ProposalPlan(proposal, newest, tuple(one.number for one in chosen), drafts, effects, problems)


async def _changed_since(
    tx: Tx,
    space: Space,
    registry: Registry,
    proposed: ProposedOperation,
    operation: extractor_service_pb2.MemoryOperation,
) -> str:
    """Returns the URI of a memory of which the operation would lose what was written since it was proposed, or an empty
    text."""
    whole = _whole_values(operation)
    for uri, target in proposed.targets.items():
        now, _ = await current_of(tx, space, uri)
        base, _ = await current_of(tx, space, uri, proposed.base_revision)
        if (now and now.version) == (base and base.version):
            continue
        name = proposed.memory_type
        type = SESSION_SKILLS if name == SESSION_SKILLS.name else registry.get(name)
        if type is None or (target == "write" and proposed.action == "write" and not type.mergeable):
            # The merge refuses it, or writes it beside the other one.
            continue
        names = [one.name for one in type.fields] if target == "delete" else [*whole]
        for name in names:
            is_lost = target == "delete" or str(whole[name]) != _text(now, name)
            if is_lost and _is_kept(type, name) and _text(now, name) != _text(base, name):
                return uri
    return ""


def _whole_values(operation: extractor_service_pb2.MemoryOperation) -> Fields:
    """Returns the values that replace others as a whole, by field."""
    if operation.HasField("write"):
        return plain_values(operation.write.fields)
    return {one.field: plain_value(one.value) for one in operation.edit.patches if one.HasField("value")}


def _is_kept(type: MemoryType, name: str) -> bool:
    """Returns whether an operation may take away the value of a field: a counter is added to, and views follow."""
    return name not in VIEW_FIELDS and type.has_field(name) and not type.field(name).merge_rule.adds


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
