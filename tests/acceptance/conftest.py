import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import ROOT, Processes, processes, run


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as started:
        yield started


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    # A copy: a build leaves files behind in the tree that it is started in.
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source)
    (built,) = folder.glob("*.whl")
    return built
