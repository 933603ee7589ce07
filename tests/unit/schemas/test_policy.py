import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from runekeep_schemas.policy import MemoryPolicy, Plan, PolicyError, UnknownTypeError, check_types, resolve
from runekeep_schemas.type_files.registry import Registry

REGISTRY = Registry.load()
LONG_TERM = ("cases", "entities", "events", "patterns", "plans", "preferences", "profile", "skills", "tools")
EXECUTION = ("experiences", "trajectories")


def plan(policy: MemoryPolicy, peers: tuple[str, ...] = (), session_skills: bool = False) -> Plan:
    return resolve(policy, REGISTRY, peers, session_skills)


def test_the_default_is_everything_about_the_user_alone() -> None:
    assert plan(MemoryPolicy(), ("bob",)) == Plan(True, (), LONG_TERM, EXECUTION, False, True)


def test_peers_are_those_of_the_batch_with_safe_ids() -> None:
    seen = ("bob", "../alice", "", "carol", "bob", "x" * 65)
    made = plan(MemoryPolicy(peer_enabled=True), seen)
    assert made.allowed_peer_ids == ("bob", "carol")


def test_only_peers() -> None:
    policy = MemoryPolicy(self_enabled=False, peer_enabled=True)
    assert plan(policy, ("bob",), True) == Plan(False, ("bob",), LONG_TERM, (), False)
    assert plan(policy, (), True) == Plan(False, (), (), (), False)


def test_everything_off_still_summarizes() -> None:
    assert plan(MemoryPolicy(self_enabled=False), ("bob",)) == Plan(False, (), (), (), False, True)


def test_a_whitelist_limits_every_group() -> None:
    made = plan(MemoryPolicy(memory_types=("events", "experiences")), session_skills=True)
    assert (made.long_term_types, made.execution_types, made.session_skills) == (("events",), ("experiences",), False)
    nothing = plan(MemoryPolicy(memory_types=()), session_skills=True)
    assert nothing == Plan(True, (), (), (), False)


@pytest.mark.parametrize(
    ("policy", "setting", "expected"),
    [
        (MemoryPolicy(), False, False),
        (MemoryPolicy(), True, True),
        (MemoryPolicy(session_skills_enabled=True), False, True),
        (MemoryPolicy(session_skills_enabled=False), True, False),
        (MemoryPolicy(self_enabled=False, peer_enabled=True), True, False),
        (MemoryPolicy(memory_types=("session_skills", "trajectories")), True, True),
        (MemoryPolicy(memory_types=("session_skills", "trajectories")), False, False),
        (MemoryPolicy(memory_types=("trajectories",)), True, False),
        (MemoryPolicy(memory_types=("session_skills", "events")), True, False),
    ],
)
def test_session_skills_need_the_switch_self_and_an_execution_phase(
    policy: MemoryPolicy, setting: bool, expected: bool
) -> None:
    assert plan(policy, ("bob",), setting).session_skills is expected


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownTypeError) as caught:
        plan(MemoryPolicy(memory_types=("events", "evnts", "x")))
    assert caught.value.unknown == ("evnts", "x")
    assert set(caught.value.known) == {*LONG_TERM, *EXECUTION, "session_skills"}
    assert "'evnts', 'x'" in str(caught.value) and "trajectories" in str(caught.value)
    check_types(MemoryPolicy(memory_types=("session_skills",)), REGISTRY)


def test_a_disabled_type_is_known_but_left_out(tmp_path: Path) -> None:
    shipped = resources.files("runekeep_schemas.builtin").joinpath("profile.yaml").read_text()
    (tmp_path / "profile.yaml").write_text(shipped + "enabled: false\n")
    registry = Registry.load([tmp_path])
    policy = MemoryPolicy(memory_types=("profile", "events"))
    assert resolve(policy, registry, (), False).long_term_types == ("events",)


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        ({}, MemoryPolicy()),
        ({"memory_types": None}, MemoryPolicy()),
        ({"self": {"enabled": False}, "peer": {"enabled": True}}, MemoryPolicy(False, True)),
        ({"memory_types": ["profile"]}, MemoryPolicy(memory_types=("profile",))),
        ({"memory_types": []}, MemoryPolicy(memory_types=())),
        ({"session_skills": {"enabled": True}}, MemoryPolicy(session_skills_enabled=True)),
    ],
)
def test_policy_json(value: dict[str, Any], policy: MemoryPolicy) -> None:
    assert MemoryPolicy.from_json(value) == policy
    assert MemoryPolicy.from_json(json.loads(json.dumps(policy.to_json()))) == policy


@pytest.mark.parametrize(
    "value",
    [
        {"peers": {"enabled": True}},
        {"self": True},
        {"self": {"enabled": "yes"}},
        {"self": {}},
        {"peer": {"enabled": True, "only": "bob"}},
        {"memory_types": "profile"},
        {"memory_types": [1]},
    ],
)
def test_a_policy_of_another_form_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        MemoryPolicy.from_json(value)


def test_plan_json() -> None:
    made = plan(MemoryPolicy(peer_enabled=True), ("bob",), True)
    assert Plan.from_json(json.loads(json.dumps(made.to_json()))) == made
