"""Scans texts of callers and workers for secrets without delaying other calls.

A scan holds the interpreter's lock for 0.2 s for a megabyte, or 2 s if the text is hostile. Short texts are scanned in
a thread, long ones in a separate process with a lower priority. An account uses at most one of the two threads.
"""

import asyncio
import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, ParamSpec, TypeVar

import structlog

from runekeep_schemas import secrets
from runekeep_schemas.secrets import SecretKind
from runekeep_server.protocol.api_error import FieldViolation
from runekeep_server.protocol.errors import invalid_fields, unavailable
from runekeep_storage.drivers.common.fair_turns import FairThreads

P = ParamSpec("P")
T = TypeVar("T")

MAX_INLINE_CHARACTERS: Final = 64 * 1024
"""Longer texts, taken together, are scanned in a separate process. Starting one takes about 30 ms."""
CPU_SECONDS: Final = 6.0
CPU_SECONDS_PER_MEGACHARACTER: Final = 6.0
"""Three times what the slowest known text takes. The process is limited by processor time, which does not pass while
the machine is busy or this process is stopped."""
_MAX_WALL_SECONDS: Final = 900.0
"""Deadline for a process that gets no processor time."""

_THREADS: Final = FairThreads(2, "secrets")
_log = structlog.get_logger(__name__)


async def scan_for_secrets(scan: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs `scan` in one of the threads. Returns what it returns and raises what it raises."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, partial(scan, *args, **kwargs))


def withhold_all(texts: Sequence[str]) -> list[tuple[str, list[SecretKind]]]:
    """Returns for each text what `secrets.withhold` returns. Blocks; call it in a thread.

    Raises ApiError UNAVAILABLE when a search takes much longer than it should.
    """
    characters = sum(map(len, texts))
    if characters > MAX_INLINE_CHARACTERS:
        seconds = math.ceil(CPU_SECONDS + CPU_SECONDS_PER_MEGACHARACTER * characters / 1e6)
        try:
            return _in_process(texts, seconds)
        except TimeoutError:
            # Not repeated in this process, where it would block all other calls for as long.
            _log.error("secret_scan_timed_out", characters=characters, seconds=seconds)
            raise unavailable("secret_scan", "The search for secrets took too long.") from None
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            # For example, there is no memory for a process. A scan here delays other calls, but must not be skipped.
            _log.warning("secret_scan_failed", error=type(error).__name__)
    return [secrets.withhold(text) for text in texts]


def refuse_secrets(texts: Sequence[tuple[str, str]]) -> None:
    """Raises ApiError that names each field with a secret: a caller's text is refused, never altered. `texts`: paths of
    fields, with their texts. Blocks like `withhold_all`."""
    scanned = withhold_all([text for _, text in texts])
    violations = [
        FieldViolation(
            path, f"holds what looks like a {found[0]}. Keep it where secrets are kept, and name the place instead."
        )
        for (path, _), (_, found) in zip(texts, scanned, strict=True)
        if found
    ]
    if violations:
        raise invalid_fields(violations)


def _in_process(texts: Sequence[str], seconds: int) -> list[tuple[str, list[SecretKind]]]:
    """Raises TimeoutError after `seconds` of processor time; OSError, subprocess.SubprocessError, and ValueError if the
    process answers something else."""
    # -I and -S: only the standard library, and nothing from the working directory.
    command = [sys.executable, "-I", "-S", secrets.__file__, str(seconds)]
    try:
        ended = subprocess.run(
            command,
            input=json.dumps(texts).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            timeout=_MAX_WALL_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error
    except subprocess.CalledProcessError as error:
        if error.returncode == -signal.SIGXCPU:
            raise TimeoutError from error
        raise
    found = [(str(clean), [SecretKind(kind) for kind in kinds]) for clean, kinds in json.loads(ended.stdout)]
    if len(found) != len(texts):
        raise ValueError("the process answered for other texts")
    return found
