import ast
from pathlib import Path

import pytest
from rich.progress import Progress

from tests.bench import parts
from tests.bench.setting import Setting

FILES = {file.stem: file for file in Path(parts.__file__).parent.glob("*.py") if file.stem != "__init__"}


def test_every_part_has_its_place_on_the_page() -> None:
    assert sorted(parts.ORDER) == sorted(FILES)


@pytest.mark.parametrize("part", sorted(FILES))
def test_a_part_says_what_it_measures_and_measures_it(part: str) -> None:
    module = ast.parse(FILES[part].read_text())
    assert len((ast.get_docstring(module) or "").split()) >= 10
    (measure,) = [node for node in module.body if isinstance(node, ast.AsyncFunctionDef) and node.name == "measure"]
    assert [argument.arg for argument in measure.args.args] == ["setting"]
    # Its figures stand in its own section.
    named = [
        ast.literal_eval(node.value)
        for node in module.body
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["PART"]
    ]
    assert named == [part]


def test_a_quick_run_counts_less_and_never_nothing() -> None:
    with Progress(disable=True) as progress:
        quick = Setting((), 1, progress, Path(), quick=True)
        whole = Setting((), 1, progress, Path())
    assert [quick.count(many) for many in (1, 2, 100, 100_000)] == [1, 2, 2, 1000]
    assert whole.count(100_000) == 100_000
