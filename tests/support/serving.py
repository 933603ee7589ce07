"""Commands of `runekeep` that serve HTTP beside a server, as processes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.acceptance.processes import environment


@contextmanager
def serving(command: str, *options: str, **variables: str) -> Iterator[str]:
    """The URL of a command on a free port of this machine; it must end with 0 when it is asked to."""
    process = subprocess.Popen(
        [sys.executable, "-m", "runekeep", command, "--listen", "127.0.0.1:0", "--json", *options],
        env=environment(variables),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield str(json.loads(process.stdout.readline())[command])
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
