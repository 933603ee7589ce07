"""Pyright, which comes from npm, knows the types of the Python client."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.typed.samples import as_module

ROOT = Path(__file__).parents[2]
PYRIGHT = ["npx", "--yes", "--package", "pyright@1.1.414", "--", "pyright", "--pythonpath", sys.executable]

pytestmark = pytest.mark.languages


def test_pyright_agrees_with_the_types_of_the_client(tmp_path: Path) -> None:
    shown = tmp_path / "samples.py"
    shown.write_text(as_module(), encoding="utf-8")
    checked = [str(ROOT / "tests" / "typed" / "application.py"), str(shown)]
    ended = subprocess.run([*PYRIGHT, *checked], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
