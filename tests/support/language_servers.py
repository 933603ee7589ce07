"""Real servers for the tests of clients in other languages, which find them by environment variables."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.acceptance.processes import environment, processes
from tests.support.secured import secured

_USER = "nils"


@contextlib.contextmanager
def language_servers(directory: Path) -> Iterator[dict[str, str]]:
    """Yields the environment of such tests: a server that takes no keys, with an extractor, and one that takes keys
    over TLS."""
    with contextlib.ExitStack() as stack:
        folders = [directory / name for name in ("open", "secured")]
        for folder in folders:
            folder.mkdir()
        open_to_all, closed = (stack.enter_context(processes(folder)) for folder in folders)
        open_to_all.server()
        open_to_all.extractor("worker", "--engine", "offline")
        client, _ = secured(closed, folders[1], _USER)
        yield environment(
            {
                "RUNEKEEP_TEST_OPEN": open_to_all.address,
                "RUNEKEEP_TEST_SECURED": closed.address,
                "RUNEKEEP_TEST_USER": _USER,
                "RUNEKEEP_TEST_KEY": client["RUNEKEEP_API_KEY"],
                "RUNEKEEP_TEST_CA": client["RUNEKEEP_CA_FILE"],
            }
        )
