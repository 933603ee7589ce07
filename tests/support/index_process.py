"""The Qdrant double as a process of its own, for servers that share an index."""

import json
import selectors
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0


class IndexProcess:
    """`url` is good for RUNEKEEP_INDEX_URL between `start` and `stop`."""

    def __init__(self, directory: Path) -> None:
        self.url = ""
        self._directory = directory

    def start(self) -> "IndexProcess":
        command = [sys.executable, "-m", "tests.support.index_server", str(self._directory), "0"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            line = self._process.stdout.readline() if selector.select(START_SECONDS) else ""
        if not line:
            self.stop()
            raise AssertionError("the index did not start")
        self.url = f"grpc://127.0.0.1:{json.loads(line)['port']}"
        return self

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()
