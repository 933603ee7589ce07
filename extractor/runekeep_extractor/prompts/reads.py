"""The read-only tools that the model may call before it answers. They run through the job's scoped reads.

No tool changes anything: changes are the model's answer, and the server validates them.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runekeep.v1 import memory_service_pb2
from runekeep.v1.memory_service_pb2 import FoundItem
from runekeep_extractor.answers.answer import NamedValue
from runekeep_extractor.answers.operations import field_value
from runekeep_extractor.engine.interface import Job
from runekeep_extractor.prompts.json_schema import lean
from runekeep_extractor.prompts.records import Known, entry_line, found_line, line, memory_line
from runekeep_extractor.rpc.calls import NotAllowed, NotThere, SearchAway, TooMuch
from runekeep_extractor.rpc.searches import find_fitting
from runekeep_schemas.memory_types.model import FieldType

MAX_READS: Final = 8
MAX_ROUNDS: Final = 3

_RESULT_LENGTH: Final = 16_000
_FOUND_LENGTH: Final = 2000
_MAX_NODES: Final = 1000


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Read(_Arguments):
    """Read a document; a memory comes with its fields, uncut."""

    uri: str
    offset: int = Field(default=0, ge=0, description="First line, from 0.")
    limit: int = Field(default=-1, ge=-1, description="Lines; -1: all.")


class Find(_Arguments):
    """Search memories and past conversation by meaning."""

    query: str = Field(min_length=1, description="In plain words.")
    target_uri: str = Field(default="", description="Only below this URI; empty: everywhere.")
    limit: int = Field(default=10, ge=1, le=100)
    score_threshold: float | None = Field(default=None, description="Lowest score wanted.")
    filter: list[NamedValue] = Field(default_factory=list, description="Only memories with these field values.")


class Ls(_Arguments):
    """List a directory."""

    uri: str
    output: Literal["agent", "original"] = Field(default="agent", description="agent: in short; original: all details.")
    abs_limit: int = Field(default=256, ge=0, le=4000, description="Characters of each abstract.")
    show_all_hidden: bool = Field(default=False, description="Dot files too.")
    node_limit: int = Field(default=_MAX_NODES, ge=1, description="Most entries.")


class Tree(Ls):
    """List recursively."""

    uri: str = "viking://"
    level_limit: int = Field(default=3, ge=1, le=16, description="Levels.")


_TOOLS: Final[Mapping[str, type[_Arguments]]] = {"read": Read, "find": Find, "ls": Ls, "tree": Tree}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may call. `schema`: of its arguments. `strict`: the server is asked to hold calls to it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    strict: bool = False


def tool_definitions() -> list[Tool]:
    """Returns the tools. They are not strict: they are seldom called, and `Reader` validates the arguments."""
    return [
        Tool(name, (model.__doc__ or "").strip(), lean(model.model_json_schema())) for name, model in _TOOLS.items()
    ]


class Reader:
    """Runs the tool calls of one dialogue, at most `MAX_READS`, and records in `known` the memories they showed."""

    def __init__(self, job: Job, known: Known, shown: Callable[[FoundItem, Known, int], str] = found_line) -> None:
        """`shown`: returns a search result as a record, with its texts cut to a number of characters."""
        self._job = job
        self._known = known
        self._shown = shown
        self._left = MAX_READS

    @property
    def spent(self) -> bool:
        """Returns whether no read is left."""
        return self._left <= 0

    async def run(self, name: str, arguments: object) -> tuple[str, bool]:
        """Returns text for the model, and whether it is an error. Errors of the store or the lease are raised."""
        if self.spent:
            return "No reads are left. Answer with what you know.", True
        self._left -= 1
        model = _TOOLS.get(name)
        if model is None:
            return f"There is no such tool. Tools: {', '.join(_TOOLS)}.", True
        try:
            call = model.model_validate(arguments)
        except ValidationError as error:
            wrong = sorted({".".join(map(str, item["loc"])) for item in error.errors()})
            return f"Arguments that cannot be used: {', '.join(wrong)}", True
        try:
            text = await self._dispatch(call)
        except NotThere:
            return "Nothing is there.", True
        except NotAllowed:
            return "That URI or argument is not allowed here.", True
        except TooMuch:
            return "That is too large for one answer.", True
        except SearchAway:
            return "Search is not available at present. List directories with tree, and read what you need.", True
        if len(text) > _RESULT_LENGTH:
            text = f"{text[:_RESULT_LENGTH]}\n[cut, {len(text)} characters in all]"
        return text or "Nothing found.", False

    def _dispatch(self, call: _Arguments) -> Awaitable[str]:
        match call:
            case Read():
                return self._read(call)
            case Find():
                return self._find(call)
            case Tree():
                return self._list(call, call.level_limit)
            case Ls():
                return self._list(call, 1)
        raise AssertionError(f"no reader for {type(call).__name__}")

    async def _read(self, call: Read) -> str:
        response = await self._job.read(call.uri, call.offset, call.limit)
        whole = call.offset == 0 and call.limit <= 0
        if whole and response.HasField("memory"):
            return memory_line(response.memory, self._known, _RESULT_LENGTH)
        if response.HasField("memory"):
            self._known[response.memory.uri] = response.memory.memory_type
        document = response.document
        more = f"\n[lines {document.next_offset} to {document.total_lines} follow]" if document.next_offset else ""
        return document.text + more

    async def _find(self, call: Find) -> str:
        request = memory_service_pb2.FindMemoriesRequest(
            query=call.query[:4000],
            target_uri=call.target_uri,
            limit=call.limit,
            score_threshold=call.score_threshold,
            view=memory_service_pb2.MEMORY_VIEW_FULL,
        )
        for named in call.filter:
            value = named.value
            if value is not None:
                request.filter[named.name].CopyFrom(field_value(_type_of(value), value))
        found = await find_fitting(self._job, request)
        return "\n".join(self._shown(item, self._known, _FOUND_LENGTH) for item in found)

    async def _list(self, call: Ls, depth: int) -> str:
        # `viking://` is the root of the whole store, of which the job may only see its own space.
        uri = "" if call.uri.rstrip("/") in ("viking:", "") else call.uri
        answer = await self._job.list(
            uri,
            depth=depth,
            abstract_limit=call.abs_limit,
            node_limit=min(call.node_limit, _MAX_NODES),
            show_hidden=call.show_all_hidden,
        )
        listing = answer.listing
        lines = [
            entry_line(entry, self._known) if call.output == "agent" else self._detailed(entry)
            for entry in listing.entries
        ]
        return "\n".join([*lines, *(["[more entries were cut]"] if listing.truncated else [])])

    def _detailed(self, entry: memory_service_pb2.DirectoryEntry) -> str:
        entry_line(entry, self._known)
        return line(
            {
                "uri": entry.uri,
                "name": entry.name,
                "directory": entry.directory,
                "memory_type": entry.memory_type,
                "abstract": entry.abstract,
                "version": entry.version,
                "update_time": entry.update_time.ToJsonString() if entry.HasField("update_time") else "",
            }
        )


def _type_of(value: str | int | float | bool) -> FieldType:
    match value:
        case bool():
            return FieldType.BOOL
        case int():
            return FieldType.INT64
        case float():
            return FieldType.FLOAT32
        case str():
            return FieldType.STRING
