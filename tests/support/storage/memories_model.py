"""What the machine over memories knows beside the store, and how the two are held against each other."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runekeep_schemas.documents.filenames import memory_uri
from runekeep_schemas.documents.render import file_view
from runekeep_schemas.memory_types.model import FieldValue
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.apply.output import Output
from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import NotFound
from runekeep_storage.memories import memories
from runekeep_storage.records import Job, LeaseId
from runekeep_storage.sessions import archives

TOPICS = ("Tea", "Desk", "Walks")
TOOL = "grep"
"""Named as a memory of a type whose writes add up."""
NAMES = (*TOPICS, TOOL)
COUNTED_TYPE = """\
name: runs
description: How often something ran.
directory: "viking://user/{user_space}/memories/runs"
filename_template: "{run_name}.md"
content_template: "{run_name} ran {total_calls} times."
fields:
  - name: run_name
    type: string
    description: What ran.
    merge_op: immutable
  - name: total_calls
    type: int64
    description: How often.
    merge_op: sum
"""
MEMORIES = "viking://user/{user}/memories"

Fields = dict[str, FieldValue]


@dataclass(frozen=True)
class Known:
    """A version that the model expects: its number and the fields that were written."""

    version: int
    fields: Fields


def registry_with_runs(directory: Path) -> Registry:
    """The built-in types and one whose writes add up: the server counts tools by itself."""
    (directory / "runs.yaml").write_text(COUNTED_TYPE)
    return Registry.load([directory])


class Model:
    """One space. `history` holds, for each revision from 0 on, what is alive at it, by URI."""

    def __init__(self, space: Space, registry: Registry) -> None:
        self.space = space
        self.registry = registry
        self.history: list[dict[str, Known]] = [{}]
        self.newest: dict[str, int] = {}
        self.job: Job | None = None
        self.done: dict[LeaseId, tuple[Output, int]] = {}
        self.seen = 0

    def uri(self, name: str) -> str:
        type, fields = self.made(name, "")
        return memory_uri(self.registry[type], fields, self.space.user)

    @staticmethod
    def made(name: str, words: str) -> tuple[str, Fields]:
        """Type and fields of what is written under that name."""
        if name == TOOL:
            return "runs", {"run_name": TOOL, "total_calls": 1}
        return "preferences", {"topic": name, "content": words}

    def current(self, name: str) -> Known | None:
        return self.history[-1].get(self.uri(name))

    def revised(self, after: dict[str, Fields | None]) -> None:
        """A new revision, in which memories by name are as said; None for one that is gone."""
        alive = dict(self.history[-1])
        for name, fields in after.items():
            uri = self.uri(name)
            there = alive.get(uri)
            if fields == (there.fields if there else None):
                continue
            self.newest[uri] = self.newest.get(uri, 0) + 1
            if fields is None:
                del alive[uri]
            else:
                alive[uri] = Known(self.newest[uri], fields)
        self.history.append(alive)


async def check_revision(tx: Tx, model: Model, revision: int) -> None:
    """Lists, single reads and reads of many, all as of the revision."""
    alive = model.history[revision]
    root = MEMORIES.format(user=model.space.user)
    at = revision if revision < len(model.history) - 1 else memories.LATEST
    listed = await memories.listing(tx, model.space, root, at)
    assert {one.uri: one.version for one in listed} == {uri: known.version for uri, known in alive.items()}
    assert [one.uri for one in listed] == sorted(alive)
    for name in NAMES:
        uri = model.uri(name)
        try:
            memory = await memories.get(tx, model.space, uri, revision=at)
        except NotFound:
            assert uri not in alive
        else:
            check_memory(memory, alive[uri])
    keys = [(uri, version) for uri, newest in model.newest.items() for version in range(1, newest + 1)]
    found = await memories.alive(tx, model.space, keys, revision)
    assert set(found) == {(uri, known.version) for uri, known in alive.items()}


def check_memory(memory: memories.Memory, known: Known) -> None:
    stored = {name: of for name, of in json.loads(memory.fields).items() if of not in ("", 0)}
    assert (memory.version, stored) == (known.version, known.fields)


async def check_versions(tx: Tx, model: Model) -> None:
    """Every version that a memory ever had, by its number, with the revisions between which it was alive."""
    for uri, newest in model.newest.items():
        found, _ = await memories.versions_page(tx, model.space, uri, memories.LATEST, 1000, 2**40)
        assert [memory.version for memory in found] == list(range(newest, 0, -1))
        for memory in found:
            assert await memories.get(tx, model.space, uri, version=memory.version) == memory
            of = {
                revision: alive[uri]
                for revision, alive in enumerate(model.history)
                if uri in alive and alive[uri].version == memory.version
            }
            if memory.deleted:
                assert not of and memory.rev_from == memory.rev_to and uri not in model.history[memory.rev_from]
                continue
            check_memory(memory, of[memory.rev_from])
            last = memory.rev_to - 1 if memory.rev_to else len(model.history) - 1
            assert list(of) == list(range(memory.rev_from, last + 1))


async def check_replay(tx: Tx, model: Model) -> None:
    """From nothing, the change of each revision in turn: the diff of its commit, or the versions that a caller made."""
    key = model.space.account, model.space.user
    commits = await tx.fetch("SELECT * FROM commits WHERE account = $1 AND user_id = $2 ORDER BY revision", *key)
    assert [commit["revision"] for commit in commits] == list(range(1, len(model.history)))
    files: dict[str, str] = {}
    for commit in commits:
        if commit["archive_index"]:
            archive = await archives.get(tx, model.space, commit["session_id"], commit["archive_index"])
            assert (archive.revision, archive.task_id) == (commit["revision"], commit["job_id"])
            replay_diff(json.loads(archive.diff)["operations"], files)
        else:
            for row in await tx.fetch(
                "SELECT uri, version FROM memories WHERE account = $1 AND user_id = $2 AND rev_from = $3",
                *(*key, commit["revision"]),
            ):
                memory = await memories.get(tx, model.space, row["uri"], version=row["version"])
                if memory.deleted:
                    del files[memory.uri]
                else:
                    files[memory.uri] = file_of(model, memory)
        alive = {}
        for uri in model.history[commit["revision"]]:
            alive[uri] = file_of(model, await memories.get(tx, model.space, uri, revision=commit["revision"]))
        assert files == alive


def file_of(model: Model, memory: memories.Memory) -> str:
    return file_view(model.registry[memory.memory_type], json.loads(memory.fields))


def replay_diff(operations: dict[str, list[dict[str, Any]]], files: dict[str, str]) -> None:
    for added in operations["adds"]:
        assert added["uri"] not in files
        files[added["uri"]] = added["after"]
    for updated in operations["updates"]:
        assert files[updated["uri"]] == updated["before"] != updated["after"]
        files[updated["uri"]] = updated["after"]
    for deleted in operations["deletes"]:
        assert files.pop(deleted["uri"]) == deleted["deleted_content"]


async def everything(tx: Tx) -> dict[str, list[tuple[Any, ...]]]:
    tables = ("spaces", "commits", "memories", "outbox", "archives", "jobs", "tasks", "task_events")
    return {table: [tuple(row) for row in await tx.fetch(f"SELECT * FROM {table}")] for table in tables}
