"""The table of docs/reference/routing.md: every combination of who, whose words and policy, by a raw worker."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, combinations
from pathlib import Path

import grpc
import pytest

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from tests.support.callers import Caller, policy, said
from tests.support.server_process import ROOT
from tests.support.worker import Worker, delete, edit, write

NOTES = """\
name: notes
description: Anything.
directory: "viking://user/{user_space}/memories/notes"
filename_template: "{name}.md"
max_deletes: 100000
delete_evidence: false
fields:
  - {name: name, description: Which one., merge_op: immutable}
  - {name: content, description: What it says., merge_op: replace}
"""

Ranges = tuple[tuple[int, int], ...]

BATCH = (
    said("I moved to Bergen"),
    said("noted", role=common_pb2.ROLE_ASSISTANT),
    said("I like skiing", peer="anna"),
    said("I like sailing", peer="bert"),
    said("I like chess", peer="a b"),
    said("and skating", peer="anna"),
)
SPEAKERS = {1: "", 2: "", 3: "anna", 4: "bert", 5: "a b", 6: "anna"}
IN_BATCH = ("anna", "bert")
PEERS = ("", "anna", "bert", "dora", "a b", "../anna")
WORDS: tuple[Ranges, ...] = (
    (),
    *(
        tuple((number, number) for number in chosen)
        for size in range(1, 6)
        for chosen in combinations((1, 3, 4, 5), size)
    ),
    ((1, 2),),
    ((1, 6),),
    ((3, 3), (6, 6)),
)
INVALID: tuple[Ranges, ...] = (((1, 7),), ((0, 1),), ((2, 1),), ((1, 2), (-(2**62), 2**62)))
POLICIES = {
    "user and peers on": policy(peer=True),
    "only the user on": policy(),
    "only peers on": policy(self=False, peer=True),
}


@pytest.fixture(scope="module")
def server_settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    types = tmp_path_factory.mktemp("types")
    Path(types / "notes.yaml").write_text(NOTES)
    return {"RUNEKEEP_TYPES_DIRS": str(types)}


@dataclass(frozen=True)
class Case:
    """One operation. `owner`: of the memory that is changed, None for a write."""

    kind: str
    owner: str | None
    peer: str
    ranges: Ranges
    execution: bool = False

    @property
    def name(self) -> str:
        """A name of a memory that no other case has."""
        return f"case {NUMBERS[self]}"

    @property
    def speakers(self) -> set[str]:
        """Who said the messages in the ranges; nobody where these are invalid."""
        if self.ranges in INVALID:
            return set()
        return {SPEAKERS[number] for first, last in self.ranges for number in range(first, last + 1)}

    def uri(self, caller: Caller, owner: str) -> str:
        kind = "experiences" if self.execution else "notes"
        return caller.uri(
            f"peers/{owner}/memories/{kind}/{self.name}.md" if owner else f"memories/{kind}/{self.name}.md"
        )

    def begin(self) -> pb.MemoryOperation:
        """Writes the memory that the case changes, in a batch in which every owner speaks."""
        if self.execution:
            return write("experiences", experience_name=self.name, content="Go.")
        return write("notes", name=self.name, content="Old.", peer=self.owner or "")

    def operation(self, caller: Caller) -> pb.MemoryOperation:
        place = {"peer": self.peer, "ranges": self.ranges}
        match self.kind:
            case "edit":
                return edit(self.uri(caller, self.owner or ""), content="New.", **place)  # type: ignore[arg-type]  # keyword arguments of different types
            case "delete":
                return delete(self.uri(caller, self.owner or ""), **place)  # type: ignore[arg-type]  # keyword arguments of different types
        if self.execution:
            return write("experiences", experience_name=self.name, content="Go.", **place)
        return write("notes", name=self.name, content="New.", **place)

    # How the table calls it.

    @property
    def row(self) -> str:
        if self.execution:
            return "execution type"
        owners = {None: "write", "": "change of the user's", "dora": "change of a stranger's"}
        return owners.get(self.owner, "change of a peer's")

    @property
    def who(self) -> str:
        if self.peer in ("", "dora"):
            return "stranger" if self.peer else "none"
        if self.peer not in IN_BATCH:
            return "unsafe"
        return "a peer" if self.owner in (None, "", "dora", self.peer) else "another peer"

    @property
    def words(self) -> str:
        if self.ranges in INVALID:
            return "invalid"
        of = {"": "user", "anna": "peers", "bert": "peers", "a b": "unsafe"}
        kinds = {of[one] for one in self.speakers}
        return ", ".join(one for one in ("user", "peers", "unsafe") if one in kinds) or "none"

    def is_told_by(self, cells: tuple[str, str, str]) -> bool:
        row, who, words = cells
        user = self.words == "none" or "" in self.speakers
        takes = {
            "any": self.words != "invalid",
            "any, or invalid": True,
            "none, or the user's among them": user,
            "only others'": not user and self.words != "invalid",
        }
        return row == self.row and who in (self.who, "any") and takes.get(words, words == self.words)

    def owners(self, cell: str) -> list[str]:
        """Whose memory is written; none for a reason."""
        if cell.startswith("`"):
            return []
        told = {
            "user": [""],
            "that peer": [self.peer if self.owner is None else self.owner],
            "those peers": [one for one in IN_BATCH if one in self.speakers],
        }
        return list(chain.from_iterable(told[one] for one in cell.split(", ")))


def cases() -> Iterator[Case]:
    ranges = (*WORDS, *INVALID)
    for peer in PEERS:
        for one in ranges:
            yield Case("write", None, peer, one)
            for owner in ("", "anna", "dora"):
                yield Case("edit", owner, peer, one)
                yield Case("delete", owner, peer, one)
        for one in (*WORDS[:3], INVALID[0]):
            yield Case("write", None, peer, one, execution=True)
            yield Case("edit", "", peer, one, execution=True)


CASES = tuple(cases())
NUMBERS = {case: number for number, case in enumerate(CASES)}


@cache
def table() -> dict[tuple[str, str, str], dict[str, str]]:
    """Rows of the documented table: the cells that name a combination, and what is said for each policy."""
    lines = (ROOT / "docs" / "reference" / "routing.md").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| operation |"))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([re.sub(r"^`(peer_id)`$", r"\1", cell.strip()) for cell in line.strip("|").split("|")])
    assert list(POLICIES) == rows[0][3:]
    return {(row[0], row[1], row[2]): dict(zip(POLICIES, row[3:], strict=True)) for row in rows[2:]}


def told(case: Case) -> dict[str, str]:
    (row,) = [cells for cells in table() if case.is_told_by(cells)]
    return table()[row]


def test_the_table_has_one_row_for_every_combination_and_no_other() -> None:
    used = {cells for case in CASES for cells in table() if case.is_told_by(cells)}
    assert used == set(table())
    assert all(told(case) for case in CASES)


@pytest.mark.parametrize("allowed", POLICIES)
async def test_every_combination_goes_where_the_table_says(
    caller: Caller, channel: grpc.aio.Channel, allowed: str
) -> None:
    begun = [case for case in CASES if case.owner is not None]
    await caller.committed(*(said("x", peer=peer) for peer in ("", "anna", "dora")), policy=policy(peer=True))
    async with Worker(channel) as worker:
        verdict = await worker.deliver((await worker.take()).lease, *(case.begin() for case in begun))
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED and not verdict.skipped

    committed = await caller.committed(*BATCH, policy=POLICIES[allowed])
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        verdict = await worker.deliver(lease, *(case.operation(caller) for case in CASES))
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED, verdict.refused

    result = (await caller.task(committed.task_id)).result
    assert not result.rejected and not result.left_out_omitted
    skipped = {one.operation_index: one.reason for one in result.skipped}
    text = (await caller.read(f"{committed.archive_uri}/memory_diff.json")).text
    changes = json.loads(text)["operations"]
    changed = {kind: {one["uri"] for one in changes[f"{kind}s"]} for kind in ("add", "update", "delete")}
    changed["add"].discard(caller.uri("memories/profile.md"))
    wanted: dict[str, set[str]] = {"add": set(), "update": set(), "delete": set()}
    for number, case in enumerate(CASES):
        cell = told(case)[allowed]
        owners = case.owners(cell)
        assert skipped.get(number, "") == ("" if owners else cell.strip("`")), case
        kind = {"write": "add", "edit": "update", "delete": "delete"}[case.kind]
        wanted[kind] |= {case.uri(caller, owner) for owner in owners}
    assert changed == wanted
