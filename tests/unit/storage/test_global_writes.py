"""What may write outside of one space. A transaction that does has the store to itself and passes no lock of a space,
so that each one is a decision: it stands in this list."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]

GLOBAL_WRITES = {
    # Of the store or of operators; they touch no data of users.
    "store_identity.renew",
    "watermarks.adopt",
    "api_keys.create",
    "api_keys.rotate",
    "api_keys.revoke",
    "api_keys.note_uses",
    "accounts.set_limits",
    "stored.record_seen",
    "record_departure",
    "forget",
    "make_up",
    "take",
    "go_on",
    # One row tells every server which embedder the store is changed to.
    "_STEPS[request.action]",
    "embedder_change.start",
    "embedder_change.hold",
    "embedder_change.report",
    "embedder_change.release",
    "embedder_change.end",
    "embedder_change.forget",
    # Choose among the rows of all accounts.
    "claim",
    "self._reap",
    "jobs.end_wait",
    "idempotent_requests.forget_old",
    "retention.forget_ended",
    "audit.forget_old",
}


def test_what_writes_outside_of_one_space_is_listed_here() -> None:
    found = set()
    for package in ("server", "storage"):
        for file in (ROOT / package).rglob("*.py"):
            for call in (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)):
                # `write_global(work)`, and `partial(write_global, work)`.
                for given in (call.func, *call.args[:1]):
                    if isinstance(given, ast.Attribute) and given.attr == "write_global":
                        found.add(ast.unparse(call.args[given is not call.func]))
    assert found == GLOBAL_WRITES
