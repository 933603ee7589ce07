"""A backup or a restore that is killed at its step of number STEP:
`python -m tests.support.storage.killed_backup STEP ARGUMENTS`. The arguments are those of `runekeep_server.backup`."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from runekeep_server.backup import main

STEPS = ("fsync", "rename", "replace", "mkdir", "unlink", "link")


def _counted(call: Callable[..., Any], left: Iterator[int]) -> Callable[..., Any]:
    def counted(*arguments: Any, **named: Any) -> Any:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)

    return counted


if __name__ == "__main__":
    before_the_kill = iter(range(int(sys.argv[1])))
    for name in STEPS:
        setattr(os, name, _counted(getattr(os, name), before_the_kill))
    sys.exit(main(sys.argv[2:]))
