"""Converts keys and the audit log to the wire."""

from runekeep.v1 import admin_service_pb2 as pb
from runekeep_server.identity import Scope
from runekeep_server.wire.basics import timestamp
from runekeep_storage.accounts.api_keys import ApiKey
from runekeep_storage.accounts.audit import AuditEvent

_SCOPES = {
    Scope.USER: pb.SCOPE_USER,
    Scope.ACCOUNT: pb.SCOPE_ACCOUNT,
    Scope.ADMIN: pb.SCOPE_ADMIN,
    Scope.WORKER: pb.SCOPE_WORKER,
}
_SCOPE_OF = {number: scope for scope, number in _SCOPES.items()}


def scope_of(number: pb.Scope.ValueType) -> Scope | None:
    """Returns the scope, or None for an unknown number."""
    return _SCOPE_OF.get(number)


def api_key(key: ApiKey) -> pb.ApiKey:
    return pb.ApiKey(
        key_id=key.key_id,
        scope=_SCOPES[Scope(key.scope)],
        account=key.account,
        user=key.user,
        label=key.label,
        create_time=timestamp(key.created_at),
        expire_time=timestamp(key.expires_at),
        revoke_time=timestamp(key.revoked_at),
        rotate_time=timestamp(key.rotated_at),
        previous_expire_time=timestamp(key.previous_until),
        last_use_time=timestamp(key.used_at),
        accounts=key.accounts,
    )


def audit_event(event: AuditEvent) -> pb.AuditEvent:
    call = event.call
    return pb.AuditEvent(
        sequence=event.sequence,
        create_time=timestamp(event.created_at),
        method=call.method,
        actor=call.actor,
        scope=_SCOPES[Scope(call.scope)],
        account=event.account,
        user=call.user,
        subject=call.subject,
        code=event.code,
        trace_id=call.trace_id,
        peer=call.peer,
    )
