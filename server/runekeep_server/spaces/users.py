"""Users of an account: which there are, and a copy of one for another.

Both reach beyond the caller's own space. So both are for callers whose credentials are of the whole account.
"""

from hashlib import sha256
from typing import Final

from runekeep.v1 import space_service_pb2 as pb
from runekeep_schemas.documents.uris import IdKind, is_safe_id
from runekeep_server.identity import Caller, current_caller
from runekeep_server.protocol.errors import access_denied, invalid
from runekeep_server.protocol.pagination import next_token, open_page
from runekeep_server.spaces.importing import Imports
from runekeep_server.wire.basics import timestamp
from runekeep_storage.database import Space
from runekeep_storage.drivers.common.idempotent_requests import RequestKey
from runekeep_storage.spaces import spaces
from runekeep_storage.store import Store

_COPY: Final = "CopyUser"


async def list_users(store: Store, request: pb.ListUsersRequest) -> pb.ListUsersResponse:
    """Returns a page of the users of the caller's account. Raises ApiError."""
    account = _caller_of_account().account
    page = open_page(request, (str,))
    after = str(page.after[0]) if page.after else ""
    found = await store.database.read_global(spaces.users, account, request.prefix, after, page.size + 1)
    answer = pb.ListUsersResponse(
        users=[pb.User(user=one.name, create_time=timestamp(one.created_at)) for one in found[: page.size]]
    )
    if len(found) > page.size:
        answer.next_page_token = next_token(request, (found[page.size - 1].name,))
    return answer


async def copy_user(imports: Imports, request: pb.CopyUserRequest) -> pb.CopyUserResponse:
    """Copies the caller's data to another user of the account. Raises ApiError, SpaceNotEmpty, SpaceShut,
    StoreUnavailable."""
    caller = _caller_of_account()
    if not is_safe_id(IdKind.USER, request.to_user):
        raise invalid("to_user", "is not a valid user id", "Use another name")
    if request.to_user == caller.user:
        raise invalid("to_user", "is the calling user", "Name another user")
    source, target = Space(caller.account, caller.user), Space(caller.account, request.to_user)
    # The answer is kept with the copy, which is made in the same transaction. So its key names the source.
    digest = sha256(caller.user.encode()).hexdigest()
    key = RequestKey(_COPY, request.request_id, digest) if request.request_id else None
    made = await imports.copy(source, target, key)
    return pb.CopyUserResponse(revision=made.revision, revision_offset=made.revision_offset, contents=made.contents)


def _caller_of_account() -> Caller:
    """Returns the caller. Raises ApiError PERMISSION_DENIED if the credentials are of one user."""
    caller = current_caller()
    if not caller.may_name_users:
        raise access_denied(
            "These credentials are of one user of the account", "Call with credentials of the scope account."
        )
    return caller
