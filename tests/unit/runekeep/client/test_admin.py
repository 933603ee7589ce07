"""What operators ask for through the client and the commands, and what they are shown."""

import json
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from google.rpc import error_details_pb2

from runekeep import AsyncClient, Client
from runekeep.client.connection.errors import NotFoundError, UnavailableError
from runekeep.v1 import admin_service_pb2 as pb
from tests.unit.runekeep.cli.cli_answers import run
from tests.unit.runekeep.server_double import Refusal, ServerDouble

SECRET = "rk_abcdefghijklmnop_0123456789012345678901234567890123456789012"
LABEL = "the nightly digest, [bold]and[/bold] what else runs at night on the machine in the cellar"


def key(number: int = 1, **fields: object) -> pb.ApiKey:
    made = pb.ApiKey(key_id=f"abcdefghijklmn{number:02}", scope=pb.SCOPE_USER, account="acme", user="ada", label=LABEL)
    made.create_time.FromJsonString("2026-01-31T00:00:00Z")
    made.MergeFrom(pb.ApiKey(**fields))  # type: ignore[arg-type]  # by their names
    return made


async def test_keys_are_asked_for_as_the_contract_has_it(server: ServerDouble) -> None:
    server.script("CreateApiKey", pb.CreateApiKeyResponse(key=key(), secret=SECRET))
    server.script("RotateApiKey", pb.RotateApiKeyResponse(key=key(), secret=SECRET))
    server.script("RevokeApiKey", pb.RevokeApiKeyResponse(key=key(revoke_time={"seconds": 1})))
    async with AsyncClient(server.address) as client:
        made = await client.admin.create_key("user", account="acme", user="ada", label="x", lifetime=90.5)
        await client.admin.create_key("worker", request_id="mine")
        await client.admin.rotate_key("k", grace=60)
        await client.admin.rotate_key("k")
        revoked = await client.admin.revoke_key("k")
        with pytest.raises(ValueError, match="none of user, account, admin, worker"):
            await client.admin.create_key("root")  # type: ignore[arg-type]  # wrong on purpose
    assert (made["secret"], made["key"]["scope"], made["key"]["expire_time"]) == (SECRET, "user", None)
    assert revoked["revoke_time"] == "1970-01-01T00:00:01Z"
    user, worker = server.requests("CreateApiKey")
    assert (user.scope, user.account, user.user, user.lifetime.ToMilliseconds()) == (
        pb.SCOPE_USER,
        "acme",
        "ada",
        90_500,
    )
    assert (worker.scope, worker.request_id, worker.HasField("lifetime")) == (pb.SCOPE_WORKER, "mine", False)
    assert user.request_id
    assert [one.grace.seconds for one in server.requests("RotateApiKey")] == [60, 0]


def test_a_rotation_is_not_repeated_by_itself(server: ServerDouble) -> None:
    """Its second secret would put an end to the grace of the first."""
    server.script("RotateApiKey", Refusal(grpc.StatusCode.UNAVAILABLE))
    server.script("RevokeApiKey", Refusal(grpc.StatusCode.UNAVAILABLE), pb.RevokeApiKeyResponse(key=key()))
    with Client(server.address) as client:
        with pytest.raises(UnavailableError):
            client.admin.rotate_key("k", grace=60)
        client.admin.revoke_key("k")
    assert len(server.requests("RotateApiKey")) == 1 and len(server.requests("RevokeApiKey")) == 2


def test_lists_go_from_page_to_page(server: ServerDouble) -> None:
    server.script(
        "ListApiKeys", pb.ListApiKeysResponse(keys=[key(1)], next_page_token="t"), pb.ListApiKeysResponse(keys=[key(2)])
    )
    server.script(
        "ListAuditEvents",
        pb.ListAuditEventsResponse(events=[pb.AuditEvent(sequence=2)], next_page_token="t"),
        pb.ListAuditEventsResponse(events=[pb.AuditEvent(sequence=1)]),
    )
    since = datetime(2026, 5, 4, tzinfo=UTC)
    with Client(server.address) as client:
        assert [one["key_id"][-2:] for one in client.admin.keys("acme", include_ended=True)] == ["01", "02"]
        found = list(client.admin.audit_events("acme", actor="proxy", start_time=since, end_time=since + timedelta(1)))
    assert [one["sequence"] for one in found] == [2, 1]
    first, second = server.requests("ListApiKeys")
    assert (first.account, first.include_ended, first.page_token, second.page_token) == ("acme", True, "", "t")
    asked = server.requests("ListAuditEvents")[0]
    assert (asked.account, asked.actor, asked.start_time.ToDatetime(UTC)) == ("acme", "proxy", since)


def test_a_secret_is_shown_once_and_whole(server: ServerDouble) -> None:
    server.script("CreateApiKey", pb.CreateApiKeyResponse(key=key(), secret=SECRET))
    server.script(
        "RotateApiKey",
        pb.RotateApiKeyResponse(key=key(previous_expire_time={"seconds": 1_800_000_000}), secret=SECRET),
    )
    shown = run(
        server, "admin", "key", "create", "--scope", "user", "--account", "acme", "--user", "ada", "--expires-in", "90d"
    )
    assert SECRET in shown.stdout.splitlines() and "nobody can show it again" in shown.stdout
    assert server.requests("CreateApiKey")[0].lifetime.seconds == 90 * 86_400
    assert json.loads(run(server, "admin", "key", "create", "--scope", "admin", "--json").stdout)["secret"] == SECRET
    rotated = run(server, "admin", "key", "rotate", "k", "--grace", "2h").stdout
    assert SECRET in rotated.splitlines() and "valid until 2027-01-15 08:00 UTC" in rotated
    assert server.requests("RotateApiKey")[0].grace.seconds == 7200
    for wrong in ("2 h", "h", "-1h", "1.5h"):
        assert "90d" in run(server, "admin", "key", "rotate", "k", "--grace", wrong, status=2).output


def test_keys_fit_a_terminal_of_80_columns(server: ServerDouble) -> None:
    past, future = {"seconds": 1_700_000_000}, {"seconds": 4_000_000_000}
    every = [
        key(1, last_use_time=past),
        key(2, expire_time=future),
        key(3, expire_time=past),
        key(4, revoke_time=past),
        pb.ApiKey(key_id="worker-key-00000", scope=pb.SCOPE_WORKER),
    ]
    server.script("ListApiKeys", pb.ListApiKeysResponse(keys=every))
    shown = run(server, "admin", "key", "list", "--include-ended", "--account", "acme").stdout
    assert all(len(line) <= 80 for line in shown.splitlines()), shown
    assert server.requests("ListApiKeys")[0].include_ended
    words = " ".join(shown.split())
    for word in ("good", "expires", "expired", "revoked", "2023-11-14", "acme/ada", "workers", "[bold]"):
        assert word in words, word
    assert len(json.loads(run(server, "admin", "key", "list", "--json").stdout)["keys"]) == 5
    server.script("RevokeApiKey", pb.RevokeApiKeyResponse(key=every[3]))
    assert "Revoked abcdefghijklmn04 (acme/ada), 2023-11-14" in run(server, "admin", "key", "revoke", "k").stdout


def test_accounts_and_their_limits(server: ServerDouble) -> None:
    usage = pb.AccountUsage(
        users=1_234_567, sessions=2, messages=3, memories=4, stored_bytes=5, count_time={"seconds": 1}
    )
    limited = pb.Account(account="acme", usage=usage, limits=pb.AccountLimits(calls_per_second=2.5, streams=0))
    server.script("ListAccounts", pb.ListAccountsResponse(accounts=[limited, pb.Account(account="new")]))
    server.script("UpdateAccountLimits", pb.UpdateAccountLimitsResponse(account=limited))
    shown = run(server, "admin", "account", "list").stdout
    assert "1,234,567" in shown and "streams 0" in shown and all(len(line) <= 80 for line in shown.splitlines())
    changed = run(server, "admin", "account", "limits", "acme", "--calls-per-second", "2.5", "--streams", "0").stdout
    assert "calls per second 2.5, streams 0" in changed
    asked = server.requests("UpdateAccountLimits")[0]
    assert asked.limits == pb.AccountLimits(calls_per_second=2.5, streams=0)
    assert asked.limits.HasField("streams") and not asked.limits.HasField("daily_tokens")


def test_the_log_and_the_state_of_a_server(server: ServerDouble) -> None:
    event = pb.AuditEvent(
        sequence=1,
        create_time={"seconds": 1_700_000_000},
        method="MemoryService/DeleteUser",
        actor="key:k",
        scope=pb.SCOPE_USER,
        account="acme",
        user="ada",
        subject="ada",
        code="OK",
        peer="127.0.0.1:1",
    )
    open_one = pb.AuditEvent(method="SpaceService/ExportSpace", actor="proxy", account="acme", user="ada")
    server.script("ListAuditEvents", pb.ListAuditEventsResponse(events=[event, open_one]))
    shown = run(server, "admin", "audit", "--since", "2026-05-04", "--until", "2026-05-05T12:00").stdout
    assert "2023-11-14 22:13 UTC  OK" in shown and "by key:k from 127.0.0.1:1, about acme/ada ada" in shown
    assert "not ended" in shown and all(len(line) <= 80 for line in shown.splitlines())
    status = pb.GetServerStatusResponse(version="0.1.0", identity_mode="keys", store_revision="r2", workers=3)
    status.dependencies.add(name="store", kind="sqlite", available=True).round_trip.FromMilliseconds(2)
    status.dependencies.add(name="index", kind="qdrant", problem="does not answer")
    status.jobs.add(kind="commit", state="pending", jobs=12)
    status.index_lag.FromSeconds(7)
    server.script("GetServerStatus", status)
    shown = run(server, "admin", "status").stdout
    for word in ("0.1.0", "keys", "r2", "does not answer", "12", "7 s", "2.0"):
        assert word in shown, word
    assert json.loads(run(server, "admin", "status", "--json").stdout)["index_lag"] == 7


def test_a_refusal_says_why(server: ServerDouble) -> None:
    missing = error_details_pb2.ResourceInfo(resource_type="API key", resource_name="k")
    refusal = Refusal(grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND", "There is no API key `k`.", (missing,))
    server.script("RevokeApiKey", refusal)
    shown = run(server, "admin", "key", "revoke", "k", status=1).output
    assert "There is no API key" in shown and "runekeep admin key list" in shown and "session list" not in shown
    with Client(server.address) as client, pytest.raises(NotFoundError):
        client.admin.revoke_key("k")
