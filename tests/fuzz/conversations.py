"""Random conversations for both engines: `make fuzz-engine`.

Each life is three commits on one space, so that later ones meet what earlier ones wrote. An exception and a skipped
rule are faults. With `--engine anthropic` the engine talks to a double of the Messages API, which answers with random
operations. `--data` names a LoCoMo file, whose talk is mutated. The last line is one JSON object. A run can be repeated
with its seed.
"""

import argparse
import asyncio
import contextlib
import json
import random
import sys
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog
from pydantic import SecretStr

from runekeep.v1 import common_pb2
from runekeep_extractor.engine.interface import Engine
from runekeep_extractor.offline import OfflineEngine
from runekeep_extractor.pipeline import ModelEngine
from runekeep_extractor.settings import AnthropicSettings
from runekeep_schemas.documents.merge import MergeError
from runekeep_schemas.memory_types.coerce import FieldError
from tests.doubles.messages_api import MessagesApi, Request, answer
from tests.doubles.word_embedder import WordEmbedder
from tests.support.extractors import SUMMARY, prefers_tea
from tests.unit.extractor.embedding_job import EmbeddingJob, Space

STARTS = (
    "I live in Porto",
    "My sister Clara moved to Oslo",
    "I prefer tea to coffee",
    "The invoice tests fail",
    "We deploy it",
    "I'm allergic to nuts",
    "Our project Falcon is written in Go",
    "The import job hangs on large files",
    "I signed up",
    "Actually, I never smoked",
    "No longer, I sold the car",
    "Remember that I wake at six",
    "The boiler leaks again",
    "Sarah's dog Rex is ill",
    "I don't like jazz any more",
    "Correction: it is blue",
    "Ich wohne in Gent",
    "我住在上海，喜欢喝绿茶。",
    "私は東京に住んでいます。",
    "Я живу в Риге",
    "أنا أسكن في القاهرة",
    "मैं दिल्ली में रहता हूँ",
    "ฉันชอบชาเขียว",
)
MIDDLES = (
    "since yesterday's dependency bump",
    "next Friday",
    "in 2023",
    "on the 31st of February",
    "last week",
    "two years ago",
    "by switching to pnpm",
    "because of a race condition",
    "at 25:61",
    "for $1,200.50",
    "with prec=28 in a/b_c.py.j2",
    "every second Tuesday",
    "since 03/04/05",
    "between 5 and 3",
    "with my brother Tom",
    "and it helped",
    "until I rebooted",
)
ENDS = (
    ".",
    "!",
    "?",
    "...",
    " :)",
    " 😀🏽",
    ", remember?",
    " — just kidding.",
    "\n- one\n- two",
    " That worked, thanks!",
    "",
)
ANSWERS = (
    "Try reading the file in chunks.",
    "The fix is a localcontext with prec=28 in templates/rounding.py.j2.",
    "Noted.",
    "Restart it, then run `make clean`.",
    "That fixed it.",
    "You could use pnpm instead.",
    "```py\nx = {'a': 1}\n```",
)
ODD = (
    "",
    " ",
    "\u2028",
    "\x07",
    "e\u0301\u0301\u0301",
    "\u200f\u202e",
    "<!-- x -->",
    '{"a": [1, 2',
    "|a|b|",
    "# #",
    "9" * 400,
)
SPEAKERS = ("Ana", "Bo", "", "李", "O'Neil-Smith")


def talk_of(data: Path | None) -> list[str]:
    """What was said in a LoCoMo file; empty without one."""
    if data is None:
        return []
    conversations = [one["conversation"] for one in json.loads(data.read_text(encoding="utf-8"))]
    return [
        turn["text"]
        for conversation in conversations
        for name, turns in conversation.items()
        if isinstance(turns, list)
        for turn in turns
    ]


def text(chance: random.Random, said: Sequence[str]) -> str:
    kind = chance.random()
    if kind < 0.25 and said:
        return mutated(chance, chance.choice(said))
    if kind < 0.35:
        return chance.choice(ANSWERS)
    if kind < 0.40:
        return chance.choice(ODD)
    if kind < 0.45:
        return "".join(
            chr(chance.choice((chance.randrange(32, 0x2FF), chance.randrange(0x370, 0xD7FF)))) for _ in range(60)
        )
    pieces = [
        f"{chance.choice(STARTS)} {chance.choice(MIDDLES)}{chance.choice(ENDS)}" for _ in range(chance.randint(1, 3))
    ]
    return mutated(chance, " ".join(pieces)) if chance.random() < 0.3 else " ".join(pieces)


def mutated(chance: random.Random, text: str) -> str:
    words = text.split(" ")
    for _ in range(chance.randint(0, 4)):
        at = chance.randrange(len(words))
        match chance.randrange(5):
            case 0:
                del words[at : at + 1]
            case 1:
                words.insert(at, chance.choice(words or ["a"]))
            case 2:
                words[at] = words[at].upper()
            case 3:
                words[at] = words[at][::-1]
            case _:
                words.insert(at, chance.choice(ODD))
        words = words or [""]
    return " ".join(words)


def message(chance: random.Random, sequence: int, said: Sequence[str]) -> common_pb2.Message:
    role = chance.choice((common_pb2.ROLE_USER, common_pb2.ROLE_USER, common_pb2.ROLE_ASSISTANT))
    made = common_pb2.Message(
        id=f"m{sequence}", sequence=sequence, role=role, speaker=chance.choice(SPEAKERS), turn_id=f"t{sequence // 3}"
    )
    if chance.random() < 0.9:
        made.create_time.FromDatetime(datetime(2026, chance.randint(1, 12), chance.randint(1, 28), tzinfo=UTC))
    if chance.random() < 0.1:
        made.peer_id = "bo"
    for _ in range(chance.randint(1, 2)):
        part = made.parts.add()
        kind = chance.random()
        if kind < 0.8:
            part.text.text = text(chance, said)
        elif kind < 0.95:
            tool = part.tool
            tool.tool_id, tool.tool_name = f"c{sequence}", chance.choice(("grep", "ls", "web search", "工具"))
            tool.skill_name = chance.choice(("", "", "brew tea"))
            tool.status = chance.randrange(5)  # type: ignore[assignment]  # a number of the enum
            tool.output = text(chance, said)
            if chance.random() < 0.5:
                tool.duration.FromMilliseconds(chance.randrange(10_000_000))
            tool.input.update({"q": chance.choice((1e300, "x", None, ["a"]))})
        else:
            part.context.uri, part.context.abstract = "viking://user/memories/profile.md", text(chance, said)
    return made


def conversations(seed: int, count: int, said: Sequence[str]) -> Iterator[tuple[bool, list[list[common_pb2.Message]]]]:
    """Lives of three commits: whether there is an embedder, and the messages of each commit."""
    for number in range(-(-count // 3)):
        chance = random.Random(f"{seed}/{number}")
        sequence = 0
        life = []
        for _ in range(3):
            life.append([message(chance, sequence + at + 1, said) for at in range(chance.randint(1, 14))])
            sequence += len(life[-1])
        yield chance.random() < 0.7, life


def operations(chance: random.Random, said: Sequence[str], request: Request) -> dict[str, Any]:
    """Returns what a model might answer: memories of any text, based on messages that exist or not."""
    first = chance.randint(1, 40)
    writes = [
        {
            "memory_type": chance.choice(("preferences", "entities", "events", "tools", "no_such_type")),
            "fields": [
                {
                    "name": chance.choice(("topic", "entity_name", "event_name", "tool_name")),
                    "value": text(chance, said),
                },
                {"name": "content", "value": text(chance, said)},
            ],
            "peer_id": chance.choice(("", "", "bo")),
            "ranges": [{"start": first, "end": first + chance.randint(0, 3)}],
            "reason": "said so",
            "abstract": "",
            "overview": "",
        }
        for _ in range(chance.randint(0, 3))
    ]
    answer = {**prefers_tea(request), "write_operations": [*prefers_tea(request)["write_operations"], *writes]}
    return {**answer, "summary": {**SUMMARY, "topic": text(chance, said)}}


@contextlib.asynccontextmanager
async def engine_of(name: str, seed: int, said: Sequence[str]) -> AsyncIterator[Engine]:
    if name == "offline":
        yield OfflineEngine()
        return
    with MessagesApi() as api:
        chance = random.Random(seed)
        api.otherwise = answer(lambda request: operations(chance, said, request))
        settings = AnthropicSettings(
            api_key=SecretStr("any"), base_url=api.url, model="m", structured_output="on", tools="on"
        )
        engine = ModelEngine(settings, max_retries=0)
        yield engine
        await engine.close()


async def run(seed: int, count: int, said: Sequence[str], engine: str = "offline") -> tuple[int, Counter[str]]:
    """How many conversations ran, and the faults by kind."""
    async with engine_of(engine, seed, said) as opened:
        return await _run(opened, seed, count, said)


async def _run(engine: Engine, seed: int, count: int, said: Sequence[str]) -> tuple[int, Counter[str]]:
    faults, ran = Counter[str](), 0
    for has_embedder, life in conversations(seed, count, said):
        space = Space()
        for messages in life:
            job = EmbeddingJob(messages, space.memories(), peers=["bo"])
            job.embedder = WordEmbedder() if has_embedder else None  # type: ignore[assignment]  # a double
            try:
                output = await engine.extract(job)
            except Exception as error:
                faults["".join(traceback.format_exception(error)[-2:])[:300]] += 1
                break
            # A server renames the second of two events or cases with the same name, and accepts no unknown field or
            # type. This space refuses both, which is no fault.
            with contextlib.suppress(MergeError, FieldError, KeyError, ValueError):
                space.apply(output)
            faults.update({f"skipped {rule}": times for rule, times in output.skipped_rules.items()})
            ran += 1
    return ran, faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--engine", choices=("offline", "anthropic"), default="offline")
    flags = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    ran, faults = asyncio.run(run(flags.seed, flags.count, talk_of(flags.data), flags.engine))
    told = {"engine": flags.engine, "seed": flags.seed, "conversations": ran, "faults": dict(faults)}
    print(json.dumps(told, ensure_ascii=False))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
