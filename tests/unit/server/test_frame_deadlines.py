"""The default deadlines are those that the contract states."""

import re
from pathlib import Path

from server.deadlines import default_deadlines
from server.settings import DeadlineSettings

PROTO = Path(__file__).parents[3] / "proto" / "runekeep" / "v1"
_SERVICE = re.compile(r"^service (\w+) \{(.*?)^\}", re.M | re.S)
_METHOD = re.compile(r"((?:^  //[^\n]*\n)+)  rpc (\w+)\(", re.M)


def stated() -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for file in PROTO.glob("*.proto"):
        for service, body in _SERVICE.findall(file.read_text(encoding="utf-8")):
            for comment, method in _METHOD.findall(body):
                seconds = re.search(r"Deadline:\s+(\d+)\s+s", comment.replace("  //", " "))
                name = f"/runekeep.v1.{service}/{method}"
                found[name] = float(seconds[1]) if seconds else None
                assert seconds or re.search("No\\s+deadline", comment.replace("  //", " ")), name
    return found


def test_defaults_are_those_of_the_contract() -> None:
    settings = DeadlineSettings()
    named = default_deadlines(settings)
    contract = stated()
    assert len(contract) > 20
    assert set(named) <= set(contract)
    assert {name: named.get(name, settings.call_seconds) for name in contract} == contract
