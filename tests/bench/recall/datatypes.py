"""Compares searches by indexes that hold their vectors as each datatype, all made from one store."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from runekeep_storage.drivers.common.data_directory import DataDirectory
from runekeep_storage.index.base import VectorDatatype
from tests.bench.recall.locomo import Conversation
from tests.bench.recall.run import model_settings
from tests.bench.recall.score import Asked, figures

FIRST = 10
"""Results that are compared."""
_BLOCK_BYTES = 512
"""Unit of `st_blocks`."""

Answers = dict[str, list[Asked]]


async def compare(
    data_dir: Path,
    embedder: str,
    conversations: Sequence[Conversation],
    ask: Callable[[VectorDatatype], Awaitable[Answers]],
) -> dict[str, dict[str, float]]:
    """Returns figures by datatype. `same`: the share of the first results by float32 that are among the first by this
    one; `in_order`: the share of questions whose first results are the same in the same order."""
    made: dict[str, dict[str, float]] = {}
    by_float32: list[tuple[str, ...]] = []
    # The default first: the others are compared with it.
    for datatype in VectorDatatype:
        points = await asyncio.to_thread(_rebuild, data_dir, embedder, datatype)
        answers = await ask(datatype)
        first = [one.found[:FIRST] for some in answers.values() for one in some]
        by_float32 = by_float32 or first
        pairs = list(zip(by_float32, first, strict=True))
        made[datatype] = {
            "points": points,
            "vector_bytes_a_point": round(_vector_bytes(data_dir) / points, 1),
            "same": round(sum(len({*a} & {*b}) for a, b in pairs) / sum(len(a) for a, _ in pairs), 4),
            "in_order": round(sum(a == b for a, b in pairs) / len(pairs), 4),
            **{name: value for name, value in figures(answers, conversations).items() if name.startswith("turn_")},
        }
    return made


def _rebuild(data_dir: Path, embedder: str, datatype: VectorDatatype) -> int:
    """Makes the index anew, as an operator does. Returns the number of its points."""
    settings = {**model_settings(), "RUNEKEEP_EMBEDDER": embedder, "RUNEKEEP_INDEX_DATATYPE": datatype}
    command = [sys.executable, "-m", "runekeep_server.rebuild", "--data-dir", str(data_dir), "--json"]
    done = subprocess.run(command, env={**os.environ, **settings}, check=True, stdout=subprocess.PIPE)
    counts: dict[str, Any] = json.loads(done.stdout)
    return sum(counts.values())


def _vector_bytes(data_dir: Path) -> int:
    """Returns the bytes of disk that the index takes for dense vectors. A search reads all of a user's vectors there,
    so as many are in memory."""
    files = DataDirectory(data_dir).index.glob("shard*/segments/*/vector_storage-dense*/**/*")
    return sum(path.stat().st_blocks * _BLOCK_BYTES for path in files if path.is_file())
