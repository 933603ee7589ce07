"""Identifies the caller of each call: a user of an account, an extractor worker or an operator. The identity comes from
the call's credentials and metadata, never from a request field."""

from runekeep_server.identity.authenticator import Authenticator, Context, Grant, principal_for
from runekeep_server.identity.development import DevelopmentAuthenticator, development_caller
from runekeep_server.identity.metadata import (
    ACCOUNT_KEY,
    USER_KEY,
    Metadata,
    enter_metadata,
    named_id,
    only_values,
    sent_metadata,
)
from runekeep_server.identity.principals import (
    Admin,
    Audience,
    Caller,
    Principal,
    Scope,
    Worker,
    caller_space,
    current_caller,
    current_trace,
    current_worker,
    enter_principal,
)
from runekeep_server.identity.traces import TRACE_KEY, Trace, new_trace, trace_of

__all__ = [
    "ACCOUNT_KEY",
    "TRACE_KEY",
    "USER_KEY",
    "Admin",
    "Audience",
    "Authenticator",
    "Caller",
    "Context",
    "DevelopmentAuthenticator",
    "Grant",
    "Metadata",
    "Principal",
    "Scope",
    "Trace",
    "Worker",
    "caller_space",
    "current_caller",
    "current_trace",
    "current_worker",
    "development_caller",
    "enter_metadata",
    "enter_principal",
    "named_id",
    "new_trace",
    "only_values",
    "principal_for",
    "sent_metadata",
    "trace_of",
]
