"""What a process loads and looks through at its start, in processes of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODULES = (
    "print(sorted({name.partition('.')[0] for name in sys.modules} & {'rich', 'structlog', 'asyncio', 'pydantic'}))"
)


def said_by(code: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={}, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@pytest.mark.parametrize(
    "modules",
    ["runekeep_server.services, runekeep_server.app", "runekeep_extractor.running, runekeep_extractor.offline"],
)
def test_a_process_goes_without_rich(modules: str) -> None:
    begin = "import sys; from runekeep_common import process_startup; process_startup.begin()"
    assert said_by(f"{begin}; import {modules}; {MODULES}") == "['asyncio', 'pydantic', 'structlog']"


def test_the_index_process_loads_little_but_its_index() -> None:
    assert said_by(f"import sys, runekeep_storage.index.edge_process; {MODULES}") == "[]"


def test_garbage_is_looked_for_again_but_not_among_what_was_loaded() -> None:
    look = "gc.isenabled(), gc.get_freeze_count() > 10_000"
    code = (
        f"import gc, json; from runekeep_common import process_startup; process_startup.begin(); print({look});"
        f"import rich, pydantic; process_startup.begun(); print({look})"
    )
    assert said_by(code).splitlines() == ["False False", "True True"]
