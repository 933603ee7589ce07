"""`runekeep http` before a real server: JSON as curl sends it, protobuf, streams, errors, keys, and foreign pages."""

import json
import shlex
import signal
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest

from runekeep.http_api.methods import path_of, served_methods
from runekeep.v1 import admin_service_pb2 as wire
from runekeep.v1 import session_service_pb2
from tests.acceptance.processes import Processes, environment, processes
from tests.support.callers import unique
from tests.support.fork_server import run_module
from tests.support.keys import KEYED, Operator
from tests.support.ports import free_port
from tests.support.server_process import ServerProcess
from tests.support.serving import serving
from tests.support.waiting import until

SESSIONS, TASKS = "runekeep.v1.SessionService", "runekeep.v1.TaskService"
HELLO = {"role": "ROLE_USER", "parts": [{"text": {"text": "I live in Lisbon."}}]}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Processes, str]]:
    """A server in development mode, and the URL of HTTP in front of it."""
    with processes(tmp_path_factory.mktemp("http")) as fleet:
        fleet.server(RUNEKEEP_EMBEDDER="none")
        with serving("http", "--address", fleet.address, "--allow-origin", "https://app.example.com") as url:
            yield fleet, url


@pytest.fixture
async def http(served: tuple[Processes, str]) -> AsyncIterator[httpx2.AsyncClient]:
    """Calls of a user of the test's own."""
    async with httpx2.AsyncClient(base_url=served[1], headers={"x-runekeep-user": unique("user")}) as client:
        yield client


async def committed(http: httpx2.AsyncClient) -> str:
    """The task of a commit of one message."""
    for method, request in (
        ("GetSession", {"session": "s", "autoCreate": True}),
        ("AddMessages", {"session": "s", "messages": [HELLO]}),
        ("CommitSession", {"session": "s"}),
    ):
        answer = await http.post(f"{SESSIONS}/{method}", json=request)
        assert answer.status_code == 200, answer.text
    return str(answer.json()["taskId"])


def envelope(message: Any) -> bytes:
    body = json.dumps(message).encode()
    return struct.pack(">BI", 0, len(body)) + body


def envelopes(body: bytes) -> list[tuple[int, Any]]:
    """The flags and messages of a stream."""
    found = []
    while body:
        flags, size = struct.unpack(">BI", body[:5])
        found.append((flags, json.loads(body[5 : 5 + size])))
        body = body[5 + size :]
    return found


async def test_what_was_added_as_json_is_read_as_json_and_as_protobuf(http: httpx2.AsyncClient) -> None:
    await http.post(f"{SESSIONS}/GetSession", json={"session": "s", "autoCreate": True})
    await http.post(f"{SESSIONS}/AddMessages", json={"session": "s", "messages": [HELLO]})

    listed = await http.get(f"{SESSIONS}/ListMessages", params={"encoding": "json", "message": '{"session":"s"}'})
    request = session_service_pb2.ListMessagesRequest(session="s").SerializeToString()
    binary = await http.post(f"{SESSIONS}/ListMessages", content=request, headers={"content-type": "application/proto"})

    assert [one["parts"] for one in listed.json()["messages"]] == [HELLO["parts"]]
    read = session_service_pb2.ListMessagesResponse.FromString(binary.content)
    assert [one.id for one in read.messages] == [one["id"] for one in listed.json()["messages"]]


async def test_a_task_is_followed_to_its_end(http: httpx2.AsyncClient, served: tuple[Processes, str]) -> None:
    task = await committed(http)
    worker = served[0].extractor("w1")

    answer = await http.post(
        f"{TASKS}/WatchTask",
        content=envelope({"taskId": task}),
        headers={"content-type": "application/connect+json"},
        timeout=60,
    )

    # Commits of the other tests stay open.
    worker.send_signal(signal.SIGTERM)
    messages = envelopes(answer.content)
    assert messages[-1] == (2, {}), "the last envelope says that the stream ended, and how"
    assert messages[0][1]["snapshot"]["taskId"] == task
    assert messages[-2][1]["ended"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("path", [f"{SESSIONS}/StreamMessages", "runekeep.v1.SpaceService/ImportSpace"])
async def test_a_method_that_takes_a_stream_says_where_it_is_served(http: httpx2.AsyncClient, path: str) -> None:
    answer = await http.post(path, content=envelope({}), headers={"content-type": "application/connect+json"})
    assert answer.status_code == 501 and answer.json()["code"] == "unimplemented"
    assert path in answer.json()["message"] and "gRPC" in answer.json()["message"]


async def test_an_error_of_a_stream_is_its_last_envelope(http: httpx2.AsyncClient) -> None:
    answer = await http.post(
        f"{TASKS}/WatchTask",
        content=envelope({"taskId": "none"}),
        headers={"content-type": "application/connect+json"},
    )

    ((flags, last),) = envelopes(answer.content)
    assert flags == 2 and last["error"]["code"] == "not_found"


async def test_errors_have_the_details_of_the_contract_in_words(http: httpx2.AsyncClient) -> None:
    answer = await http.post(f"{SESSIONS}/AddMessages", json={"session": "", "messages": [HELLO]})

    assert answer.status_code == 400
    said = answer.json()
    assert said["code"] == "invalid_argument"
    details = {one["type"]: one["debug"] for one in said["details"]}
    assert details["google.rpc.ErrorInfo"]["reason"] == "FIELD_INVALID"
    assert details["google.rpc.BadRequest"]["fieldViolations"][0]["field"] == "session"


@pytest.mark.parametrize(
    ("content", "status", "code", "word"),
    [
        (b'{"sesion": "s"}', 400, "invalid_argument", "sesion"),
        (b'{"session": ', 400, "invalid_argument", "cannot be read"),
        (b"[" * 100_000, 400, "invalid_argument", "cannot be read"),
        (b'{"messages": [' + b"{}," * 20_000 + b"{}]}", 429, "resource_exhausted", "20000 values"),
        (b'{"session": "' + b"s" * 5_000_000 + b'"}', 429, "resource_exhausted", "larger than"),
        (b"[]", 400, "invalid_argument", "no JSON object"),
        (b'{"session": "\xff"}', 400, "invalid_argument", "cannot be read"),
    ],
    ids=["unknown field", "broken", "deep", "many values", "large", "a list", "no text"],
)
async def test_what_cannot_be_read_is_refused(
    http: httpx2.AsyncClient, content: bytes, status: int, code: str, word: str
) -> None:
    answer = await http.post(f"{SESSIONS}/AddMessages", content=content, headers={"content-type": "application/json"})

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert word in answer.json()["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "words"),
    [
        ("POST", "v1/sessions", 404, "unimplemented", ["POST to /runekeep.v1.SERVICE/METHOD", "/openapi.json"]),
        ("POST", "SessionService/AddMessage", 404, "unimplemented", [f"Did you mean /{SESSIONS}/AddMessages?"]),
        ("POST", "runekeep.v1.OtherService/Find", 404, "unimplemented", ["Unknown path. Send a POST"]),
        ("POST", "healthz", 405, "unimplemented", ["/healthz takes GET"]),
        ("GET", f"{TASKS}/WatchTask", 405, "unimplemented", ["WatchTask takes POST"]),
        ("POST", "runekeep.v1.AdminService/GetServerStatus", 404, "unimplemented", ["AdminService", "gRPC"]),
        ("GET", f"{SESSIONS}/AddMessages", 405, "unimplemented", ["AddMessages takes POST"]),
        ("PUT", f"{SESSIONS}/ListSessions", 405, "unimplemented", ["POST, or GET with ?encoding=json"]),
        ("GET", f"{SESSIONS}/ListSessions", 415, "invalid_argument", ["GET with ?encoding=json"]),
        ("POST", f"{SESSIONS}/AddMessages", 415, "invalid_argument", ["`content-type: application/json`"]),
        ("POST", f"{TASKS}/WatchTask", 415, "invalid_argument", ["`content-type: application/connect+json`"]),
    ],
)
async def test_errors_for_unknown_requests_say_what_to_send(
    http: httpx2.AsyncClient, method: str, path: str, status: int, code: str, words: list[str]
) -> None:
    answer = await http.request(method, path, content=b"{}", headers={"content-type": "text/plain"})

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert all(word in answer.json()["message"] for word in words), answer.json()
    if status == 405:
        assert answer.headers["allow"]
    if status == 415:
        assert "json" in answer.headers["accept-post"]


async def test_a_404_from_an_rpc_is_unchanged(http: httpx2.AsyncClient) -> None:
    answer = await http.post(f"{SESSIONS}/GetSession", json={"session": "none"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found") and answer.json()["details"]


def test_the_command_prints_its_address_and_a_call_that_works(served: tuple[Processes, str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "runekeep", "http", "--listen", "127.0.0.1:0", "--address", served[0].address],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        address, example = process.stdout.readline(), process.stdout.readline()
        url = address.removeprefix("HTTP on ").strip()
        words = shlex.split(example.removeprefix("Try it: "))
        called = httpx2.post(words[1], content=words[-1], headers=dict([words[3].split(": ")]))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

    assert words[0] == "curl" and words[1].startswith(url)
    assert called.status_code == 200, called.text


async def test_the_deadline_of_the_caller_holds(http: httpx2.AsyncClient) -> None:
    task = await committed(http)

    answer = await http.post(
        f"{TASKS}/WatchTask",
        content=envelope({"taskId": task}),
        headers={"content-type": "application/connect+json", "connect-timeout-ms": "300"},
    )

    assert envelopes(answer.content)[-1][1]["error"]["code"] == "deadline_exceeded"


def test_a_server_that_is_away_is_unavailable_and_used_again(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    server = ServerProcess(tmp_path / "data", {"RUNEKEEP_EMBEDDER": "none"})
    try:
        with (
            serving("http", "--address", address) as url,
            httpx2.Client(base_url=url, headers={"x-runekeep-user": "ann"}, timeout=30) as http,
        ):

            def call() -> httpx2.Response:
                return http.post(f"{SESSIONS}/GetSession", json={"session": "s", "autoCreate": True})

            away = call()
            server.start(address)
            until(lambda: call().status_code == 200)
    finally:
        server.discard()

    assert (away.status_code, away.json()["code"]) == (503, "unavailable")


async def test_only_the_key_of_the_request_is_used(fleet: Processes) -> None:
    fleet.server(RUNEKEEP_EMBEDDER="none", **KEYED)
    async with grpc.aio.insecure_channel(fleet.address) as channel:
        key = (await Operator(channel).make(wire.SCOPE_USER, "acme", "ann")).secret
    with serving("http", "--address", fleet.address, RUNEKEEP_API_KEY=key) as url:
        async with httpx2.AsyncClient(base_url=url) as http:
            request = {"session": "s", "autoCreate": True}
            without = await http.post(f"{SESSIONS}/GetSession", json=request)
            given = await http.post(f"{SESSIONS}/GetSession", json=request, headers={"authorization": f"Bearer {key}"})
            operators = await http.post("runekeep.v1.AdminService/GetServerStatus", json={})

    assert (without.status_code, without.json()["code"]) == (401, "unauthenticated")
    assert given.json()["session"]["uri"] == "viking://user/ann/sessions/s"
    assert (operators.status_code, operators.json()["code"]) == (404, "unimplemented")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": b"Bearer \x80"}, 400),
        ({"x-runekeep-user": "jörg".encode()}, 400),
        ({"content-type": b"application/grpc"}, 415),
        ({"content-encoding": b"gzip"}, 501),
        ({"x-runekeep-a!b": b"x", "x-runekeep-foo-bin": b"a"}, 200),
    ],
    ids=["key", "user", "grpc", "compressed", "unknown headers"],
)
async def test_headers_that_cannot_be_forwarded_are_refused_or_left_out(
    http: httpx2.AsyncClient, headers: dict[str, bytes], status: int
) -> None:
    given = {"content-type": b"application/json", **headers}
    answer = await http.post(f"{SESSIONS}/ListSessions", content=b"{}", headers=given)

    assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--address", "nonsense"), "host:port"),
        (("--allow-origin", "https://APP.example.com"), "lower case"),
        (("--allow-origin", "https://app.example.com:443"), "origin"),
        (("--allow-origin", "https://*"), "origin"),
        (("--listen", "0.0.0.0:0"), "--tls-cert"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_a_start_that_cannot_serve_ends_with_status_2(options: tuple[str, ...], word: str) -> None:
    refused = run_module("runekeep", "http", "--listen", "127.0.0.1:0", *options, environment=environment())

    assert (refused.returncode, refused.stdout) == (2, "")
    assert word in refused.stderr and "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "rebound.example.com"},
        {"origin": "https://other.example.com"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
    ],
    ids=lambda headers: "-".join(next(iter(headers.items()))),
)
async def test_pages_of_other_sites_are_refused(http: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    answer = await http.get(f"{SESSIONS}/ListSessions", params={"encoding": "json", "message": "{}"}, headers=headers)

    assert answer.status_code == 403


async def test_a_page_that_is_allowed_may_call(http: httpx2.AsyncClient) -> None:
    origin = {"origin": "https://app.example.com"}
    asked = await http.options(
        f"{SESSIONS}/ListSessions",
        headers={
            **origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type,x-runekeep-user",
        },
    )
    called = await http.post(f"{SESSIONS}/ListSessions", json={}, headers=origin)

    assert asked.status_code == 200
    for answer in (asked, called):
        assert answer.headers["access-control-allow-origin"] == origin["origin"]
    assert called.status_code == 200


async def test_the_description_names_every_call_and_every_schema(http: httpx2.AsyncClient) -> None:
    described = (await http.get("openapi.json")).json()

    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [str(node["$ref"])] if "$ref" in node else []
            return own + [one for value in node.values() for one in references(value)]
        return [one for value in node for one in references(value)] if isinstance(node, list) else []

    assert described["paths"].keys() == {path_of(method) for method in served_methods()}
    schemas = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}
    named = set(references(described))
    assert named and named <= schemas
    for path in described["paths"]:
        # An empty request is served or refused, and never unknown.
        if "connect+json" not in str(described["paths"][path]["post"]["requestBody"]):
            answer = await http.post(path, json={})
            assert answer.status_code == 200 or answer.json()["code"] != "unimplemented", path
