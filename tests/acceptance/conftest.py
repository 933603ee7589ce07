from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import Processes, processes


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as started:
        yield started
