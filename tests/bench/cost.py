"""What a commit costs in prompt tokens and model calls.

    python -m tests.bench.cost [--json] [--messages 800] [--locomo FILE]

The real engine and the real SDK against a server that speaks the Messages API; what is counted are the bodies of the
requests that came in. The answers are scripted: the model says what it would of any conversation, a few memories and a
summary, so calls that only a real model would make, for further reads or because an answer was cut off, are not in it.
Nothing is refused, so no repair is in it either. The job is a double with the embedder that servers run by default.
"""

import argparse
import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import structlog

from runekeep.v1 import common_pb2, memory_service_pb2
from runekeep_extractor.pipeline import ModelEngine
from runekeep_extractor.settings import AnthropicSettings
from runekeep_storage.embedders import open_embedder
from tests.bench import conversations
from tests.doubles.fixed_job import memory
from tests.doubles.messages_api import MessagesApi, Request, answer
from tests.support.tokens import TOKENIZER, RequestTokens, count, request_tokens
from tests.unit.extractor.embedding_job import EmbeddingJob

REFERENCE_STATIC = 7200
"""About what the reference system sends, whatever the conversation."""
LOCOMO = Path(__file__).parents[3] / "shared" / "data" / "locomo-dev.json"
# Near what the script answers, so that the comparison of new memories has something to ask.
KNOWN = memory(
    "preferences/Answer language.md",
    "preferences",
    {"topic": "Answer language", "content": "Wants answers in German, in at most ten lines."},
    abstract="Answers in German.",
)


@dataclass(frozen=True)
class Cost:
    """Of one commit. `said`: tokens of the conversation's own texts and tool outputs, before anything is cut."""

    session: str
    messages: int
    said: int
    calls: int
    phases: dict[str, int]
    prompt: int
    tools: int
    schema: int
    static: int
    static_all: int
    total: int


async def measure(
    session: str, messages: Sequence[common_pb2.Message], known: Sequence[memory_service_pb2.Memory] = ()
) -> Cost:
    """Run the engine on one commit. `prompt`, `tools`, `schema` and `static` are of its first call, `static_all` and
    `total` of all calls together.
    """
    job = EmbeddingJob(messages, known)
    job.embedder = open_embedder("minilm")
    assert job.embedder is not None
    with MessagesApi() as api:
        api.otherwise = answer(scripted)
        settings = AnthropicSettings(api_key="any", base_url=api.url)
        engine = ModelEngine(settings, max_retries=0)
        try:
            await engine.extract(job)
        finally:
            await engine.close()
            await job.embedder.close()
    sent: list[RequestTokens] = [request_tokens(call.body) for call in api.calls]
    return Cost(
        session=session,
        messages=len(messages),
        said=sum(map(_said, messages)),
        calls=len(sent),
        phases=dict(Counter(_phase(call) for call in api.calls)),
        prompt=sent[0].prompt,
        tools=sent[0].tools,
        schema=sent[0].schema,
        static=sent[0].static,
        static_all=sum(one.static for one in sent),
        total=sum(one.total for one in sent),
    )


def scripted(request: Request) -> dict[str, Any]:
    """What a model might answer to any of the engine's questions."""
    if "decisions" in _asked_for(request):
        candidates = dict.fromkeys(re.findall(r'"id": ?"(c\d+)"', request.last_text))
        return {
            "decisions": [{"candidate": name, "decision": "skip", "items": [], "reason": ""} for name in candidates]
        }
    numbers = [int(number) for number in re.findall(r"^#(\d+) (?:user|assistant) ", request.last_text, re.MULTILINE)]
    ranges = [{"start": numbers[0], "end": numbers[0]}]
    called = sorted(set(re.findall(r'"tool_name": ?"(\w+)"', request.last_text)))
    return {
        "reasoning": "A preference was said, something happened, and tools were called.",
        "write_operations": [
            _write("preferences", ranges, topic="Language of answers", content="Wants answers in German."),
            _write("events", ranges, event_name=f"Message {numbers[0]}", event_time="2026-03-02", content="It began."),
            *(_write("tools", ranges, tool_name=name, total_calls=1, success_count=1) for name in called),
        ],
        "edit_operations": [],
        "delete_operations": [],
        "summary": {
            "topic": "Observatory",
            "intent": "work there",
            "result": "settled in",
            "status": "open",
            "analysis": ["Talked about the first day."],
            "primary_request": "Settle in.",
            "key_concepts": ["observatory"],
            "pending_tasks": [],
        },
    }


async def measure_all(long_messages: int, locomo: Path | None) -> list[Cost]:
    """The sessions of this bench, and one of LoCoMo where the file is there."""
    costs = [
        await measure("short", conversations.short()),
        await measure("short, something near is known", conversations.short(), [KNOWN]),
        await measure("long", conversations.long(long_messages)),
        await measure("tool-heavy", conversations.tool_heavy()),
    ]
    if locomo is not None and locomo.exists():
        costs.append(await measure("LoCoMo, its longest session", conversations.locomo(locomo)))
    return costs


def table(costs: Sequence[Cost]) -> str:
    """For people, in Markdown."""
    first = costs[0]
    lines = [
        f"Tokenizer: {TOKENIZER}. The model's answers are scripted.",
        "",
        "| static part of a call | tokens |",
        "|---|---:|",
        f"| prompt: rules and the built-in types | {first.prompt:,} |",
        f"| tool definitions | {first.tools:,} |",
        f"| schema of the answer | {first.schema:,} |",
        f"| all of it | {first.static:,} |",
        f"| the reference system, about | {REFERENCE_STATIC:,} |",
        "",
        "| session | messages | tokens said | model calls | of them | static tokens of all | prompt tokens in all |",
        "|---|---:|---:|---:|---|---:|---:|",
    ]
    for cost in costs:
        phases = ", ".join(f"{number} {phase}" for phase, number in cost.phases.items())
        lines.append(
            f"| {cost.session} | {cost.messages} | {cost.said:,} | {cost.calls} | {phases} |"
            f" {cost.static_all:,} | {cost.total:,} |"
        )
    return "\n".join(lines)


def _write(memory_type: str, ranges: list[dict[str, int]], **fields: str | int) -> dict[str, Any]:
    return {
        "memory_type": memory_type,
        "fields": [{"name": name, "value": value} for name, value in fields.items()],
        "peer_id": "",
        "ranges": ranges,
        "reason": "",
        "abstract": "",
        "overview": "",
    }


def _asked_for(request: Request) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = request.body["output_config"]["format"]["schema"]["properties"]
    return properties


def _phase(request: Request) -> str:
    return "dedup" if "decisions" in _asked_for(request) else "operations"


def _said(message: common_pb2.Message) -> int:
    return sum(count(part.tool.output if part.HasField("tool") else part.text.text) for part in message.parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    parser.add_argument("--messages", type=int, default=800, help="of the long session")
    parser.add_argument(
        "--locomo", type=Path, default=LOCOMO, help="file of the data set; left out where it is not there"
    )
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    costs = asyncio.run(measure_all(options.messages, options.locomo))
    if options.json:
        print(json.dumps({"bench": "cost", "tokenizer": TOKENIZER, "sessions": [asdict(cost) for cost in costs]}))
    else:
        print(table(costs))


if __name__ == "__main__":
    main()
