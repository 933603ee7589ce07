"""Converts proposals and their operations to messages of the contract."""

from collections.abc import Iterable, Mapping

from runekeep.v1 import common_pb2, extractor_service_pb2
from runekeep.v1 import proposal_service_pb2 as pb
from runekeep.v1.session_service_pb2 import MemoryChange
from runekeep_schemas.documents.render import file_view
from runekeep_schemas.documents.uris import archive_uri, session_uri
from runekeep_schemas.memory_types.model import VIEW_FIELDS
from runekeep_server.merging.effects import Effect
from runekeep_server.merging.proposed import operation_of
from runekeep_server.wire.basics import extractor_info, timestamp
from runekeep_storage.proposals.proposals import Proposal, ProposedOperation

_STATES = {
    "open": pb.DECISION_STATE_OPEN,
    "accepted": pb.DECISION_STATE_ACCEPTED,
    "refused": pb.DECISION_STATE_REFUSED,
}
_ACTIONS = {
    "write": pb.PROPOSED_ACTION_WRITE,
    "edit": pb.PROPOSED_ACTION_EDIT,
    "delete": pb.PROPOSED_ACTION_DELETE,
}


def proposal(user: str, record: Proposal, kept: int) -> pb.Proposal:
    """`kept`: how long a task is kept after its end, in microseconds."""
    return pb.Proposal(
        task_id=record.task_id,
        session=session_uri(user, record.session_id),
        archive_uri=archive_uri(user, record.session_id, record.archive_index),
        open_operations=record.open_count,
        total_operations=len(record.operations),
        create_time=timestamp(record.created_at),
        expire_time=timestamp(record.created_at + kept),
        extractor=extractor_info(record.extractor),
    )


def operation(
    record: ProposedOperation, effects: Iterable[Effect], problem: pb.ProposalProblem | None
) -> pb.ProposedOperation:
    """`effects`: what an open operation would do now."""
    wire = pb.ProposedOperation(
        number=record.number,
        state=_STATES[record.state],
        action=_ACTIONS[record.action],
        memory_type=record.memory_type,
        revision=record.revision,
        problem=problem,
    )
    if not record.is_open:
        return wire
    given = operation_of(record)
    wire.reason, wire.removes, wire.edited = given.reason, record.removes, record.edited
    wire.ranges.extend(given.ranges)
    wire.uris.extend(record.targets)
    wire.given.extend(_patches(given))
    wire.changes.extend(_change(one) for one in effects if one.changed and not one.is_move)
    return wire


def _patches(given: extractor_service_pb2.MemoryOperation) -> list[common_pb2.FieldPatch]:
    if given.HasField("edit"):
        return list(given.edit.patches)
    values: Mapping[str, common_pb2.FieldValue] = {
        **given.write.fields,
        **{
            name: common_pb2.FieldValue(string_value=text)
            for name in VIEW_FIELDS
            if (text := getattr(given.write, name))
        },
    }
    return [common_pb2.FieldPatch(field=name, value=value) for name, value in sorted(values.items())]


def _change(effect: Effect) -> MemoryChange:
    before, after = (file_view(effect.type, one) if one is not None else "" for one in (effect.before, effect.after))
    return MemoryChange(uri=effect.uri, memory_type=effect.type.name, before=before, after=after)


def without_texts(wire: pb.ProposedOperation) -> pb.ProposedOperation:
    """Returns an open operation without what may be long."""
    short = pb.ProposedOperation()
    short.CopyFrom(wire)
    for name in ("changes", "given", "reason", "ranges"):
        short.ClearField(name)
    short.texts_omitted = True
    return short
