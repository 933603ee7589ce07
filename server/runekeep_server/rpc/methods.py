"""The methods of the contract, with the rules from their options. A server does not start if a method lacks rules."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions

from runekeep.contract import SERVICES
from runekeep.methods import is_repeatable, is_stream, rules_of
from runekeep.v1 import method_options_pb2
from runekeep_server.identity import Audience
from runekeep_server.settings import DeadlineSettings

_AUDIENCES: Final = {
    method_options_pb2.AUDIENCE_USERS: Audience.USERS,
    method_options_pb2.AUDIENCE_WORKERS: Audience.WORKERS,
    method_options_pb2.AUDIENCE_ADMINS: Audience.ADMINS,
}
WITHOUT_CREDENTIALS: Final = frozenset(
    {
        *(f"/grpc.health.v1.Health/{method}" for method in ("Check", "List", "Watch")),
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    }
)
"""Full names of the methods that need no credentials, see `runekeep_server.rpc.open_calls`."""


class RulesError(Exception):
    """A method of the contract has no rules, or rules that cannot be followed. The message names the method and the
    problem."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method of the contract. `name`: service and method without the package, such as `SessionService/GetSession`.

    `default_seconds`: deadline of calls whose caller sets none; None means no limit. `deadline_setting`: the field of
    DeadlineSettings that overrides it. `streams`: the caller or the server sends more than one message. `reads`: the
    method changes nothing. `repeatable`: clients may send the same request again. `takes_request_id`: the method runs
    once for each id. `audit`: None if calls are not recorded in the audit log. `stores_data`: the method is refused for
    an account at its quota. `destructive`: restoring a backup would undo it.
    """

    name: str
    audience: Audience
    default_seconds: float | None
    deadline_setting: str
    streams: bool
    reads: bool
    repeatable: bool
    takes_request_id: bool
    audit: method_options_pb2.AuditRules | None
    stores_data: bool
    destructive: bool

    def with_deadline(self, settings: DeadlineSettings) -> Self:
        """Returns the method with the default deadline of the settings."""
        if self.default_seconds is None:
            return self
        return replace(self, default_seconds=getattr(settings, self.deadline_setting))


def read_methods(services: Iterable[ServiceDescriptor]) -> dict[str, Method]:
    """Returns the methods by full name, such as `/runekeep.v1.SessionService/GetSession`. Raises RulesError."""
    methods: dict[str, Method] = {}
    for service in services:
        made = {f"/{service.full_name}/{method.name}": _read_method(method) for method in service.methods}
        if len({method.audience for method in made.values()}) > 1:
            raise RulesError(f"{service.full_name}: all methods of a service must have the same audience")
        methods |= made
    return methods


def _read_method(descriptor: MethodDescriptor) -> Method:
    try:
        rules = rules_of(descriptor)
    except LookupError as error:
        raise RulesError(str(error)) from error
    for problem in _problems(descriptor, rules):
        raise RulesError(f"{descriptor.full_name}: {problem}")
    return Method(
        name=f"{descriptor.containing_service.name}/{descriptor.name}",
        audience=_AUDIENCES[rules.audience],
        default_seconds=rules.deadline.ToTimedelta().total_seconds() if rules.HasField("deadline") else None,
        deadline_setting=rules.deadline_setting or "call_seconds",
        streams=is_stream(descriptor),
        reads=descriptor.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS,
        repeatable=is_repeatable(descriptor),
        takes_request_id="request_id" in descriptor.input_type.fields_by_name,
        audit=rules.audit if rules.HasField("audit") else None,
        stores_data=rules.stores_data,
        destructive=rules.destructive,
    )


def _problems(descriptor: MethodDescriptor, rules: method_options_pb2.MethodRules) -> Iterator[str]:
    if rules.audience not in _AUDIENCES:
        yield "`audience` is not set"
    if rules.HasField("deadline"):
        setting = DeadlineSettings.model_fields.get(rules.deadline_setting or "call_seconds")
        if setting is None or setting.default != rules.deadline.ToTimedelta().total_seconds():
            yield "`deadline` is not the default of `deadline_setting`"
    elif not is_stream(descriptor):
        yield "`deadline` is not set, and only a stream may do without"
    if rules.destructive and not rules.HasField("audit"):
        yield "`destructive` is set without `audit`: a restore lists such calls from the audit log"
    request = descriptor.input_type
    named = {*rules.audit.subject, rules.audit.account, rules.audit.unless} - {""}
    if unknown := named - {*request.fields_by_name, *request.oneofs_by_name}:
        yield f"`audit` names {', '.join(sorted(unknown))}, which {request.name} does not have"
    if named and descriptor.client_streaming:
        yield "`audit` names fields of a request, and there is a stream of them"


METHODS: Final[Mapping[str, Method]] = read_methods(SERVICES)
"""By full name, such as `/runekeep.v1.SessionService/GetSession`."""
INTERNAL_SERVICES: Final = frozenset(
    name[1:].partition("/")[0] for name, method in METHODS.items() if method.audience is not Audience.USERS
)
"""Full names of the services for workers and operators. If `internal_address` is set, only that address serves them."""
