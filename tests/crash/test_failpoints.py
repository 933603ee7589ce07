"""The named failpoints are those that the design asks for, each is somewhere in the code, and each has its fault."""

import ast
import re
from pathlib import Path

import pytest

from runekeep_common import failpoints
from tests.crash.faults import FAULTS

ROOT = Path(__file__).parents[2]
DESIGN = ROOT.parent / "shared" / "design" / "worker-protocol.md"
NAMED = (*failpoints.SERVER, *failpoints.EXTRACTOR)
# These have tests of their own in `tests/integration` (`test_erasures.py`, `test_embedder_change.py`,
# `test_proposals.py`): the campaign erases nothing, changes no embedder and reviews nothing.
ALL = (*NAMED, *failpoints.ERASURE, failpoints.REEMBED_BEFORE_SWITCH, failpoints.PROPOSAL_AFTER_COMMIT)
# The words of the design for each.
OF_COMMITS = {
    "commit before COMMIT": failpoints.COMMIT_BEFORE_COMMIT,
    "commit after COMMIT": failpoints.COMMIT_AFTER_COMMIT,
    "claim": failpoints.CLAIM,
    "assign": failpoints.ASSIGN,
    "input": failpoints.INPUT,
    "mid-chunks": failpoints.MID_CHUNKS,
    "before complete": failpoints.BEFORE_COMPLETE,
    "apply prepare": failpoints.APPLY_PREPARED,
    "apply mid-ops": failpoints.APPLY_MID_OPERATIONS,
    "apply before COMMIT": failpoints.APPLY_BEFORE_COMMIT,
    "apply after COMMIT before verdict": failpoints.APPLY_AFTER_COMMIT,
    "relay after upsert": failpoints.RELAY_AFTER_UPSERT,
    "relay before mark": failpoints.RELAY_BEFORE_MARK,
    "relay before watermark": failpoints.RELAY_BEFORE_WATERMARK,
}
# Jobs about turns came later: the same steps, before and after COMMIT, and one where a blob goes before its row.
OF_TURNS = {
    "turn before COMMIT": failpoints.TURN_BEFORE_COMMIT,
    "turn after COMMIT": failpoints.TURN_AFTER_COMMIT,
    "bucket blob without its row": failpoints.BUCKET_BLOB_WRITTEN,
    "bucket before COMMIT": failpoints.BUCKET_BEFORE_COMMIT,
    "bucket after COMMIT": failpoints.BUCKET_AFTER_COMMIT,
}
STEPS = OF_COMMITS | OF_TURNS


def steps_of(text: str) -> list[str]:
    """Steps in the bracket behind "Named failpoints at every step": "a x / y" is two steps of a, "b p/q R" of b."""
    found = re.search(r"Named failpoints at every step \((.*?)\);", text, re.DOTALL)
    assert found, "the design names no failpoints any more"
    steps = []
    for item in " ".join(found[1].split()).split(", "):
        first, *others = item.split(" / ")
        stage = first.split()[0]
        either = re.fullmatch(r"(\w+) (\w+)/(\w+) (\w+)", first)
        steps += [f"{stage} {either[n]} {either[4]}" for n in (2, 3)] if either else [first]
        steps += [f"{stage} {other}" for other in others]
    return steps


@pytest.mark.skipif(not DESIGN.exists(), reason="the design is not beside this checkout")
def test_the_failpoints_are_those_of_the_design() -> None:
    assert sorted(steps_of(DESIGN.read_text())) == sorted(OF_COMMITS)


def test_every_name_is_of_a_step() -> None:
    constants = {value for name, value in vars(failpoints).items() if name.isupper() and isinstance(value, str)}
    assert set(STEPS.values()) == set(NAMED) and set(ALL) == constants - {failpoints._ARMED}
    assert len(ALL) == len(set(ALL))


def test_each_is_reached_in_one_place_of_its_process() -> None:
    reached: dict[str, list[str]] = {name: [] for name in ALL}
    for room in ("server", "storage", "extractor"):
        for path in (ROOT / room).rglob("*.py"):
            for constant in _reached(ast.parse(path.read_text())):
                reached[getattr(failpoints, constant)].append(room)
    assert {name: len(rooms) for name, rooms in reached.items()} == dict.fromkeys(ALL, 1)
    assert all(reached[name] == ["extractor"] for name in failpoints.EXTRACTOR)


def test_each_has_its_fault() -> None:
    for on_server, points in ((True, failpoints.SERVER), (False, failpoints.EXTRACTOR)):
        names = [fault.name for fault in FAULTS if fault.on_server == on_server and "SIGKILL at" in fault.name]
        assert names == [f"SIGKILL at {point}" for point in points]


def _reached(tree: ast.Module) -> list[str]:
    """Constants in calls `failpoints.reached(failpoints.NAME)`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [call for call in calls if ast.unparse(call.func) == "failpoints.reached"]
    return [argument.attr for call in named for argument in call.args if isinstance(argument, ast.Attribute)]
