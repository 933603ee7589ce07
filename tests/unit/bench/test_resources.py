import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.bench.resources import Meter, Standing, processor_seconds

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_a_process_stands_by_its_memory_descriptors_and_threads(tmp_path: Path) -> None:
    before = Standing.of(os.getpid())
    files = [(tmp_path / str(number)).open("w") for number in range(5)]
    held = b"x" * 50_000_000
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        after = Standing.of(os.getpid())
        twice = Standing.of(os.getpid(), os.getpid())
    finally:
        done.set()
        thread.join()
        for file in files:
            file.close()
    assert len(held) / 1e6 == pytest.approx(after.megabytes - before.megabytes, rel=0.2)
    assert after.resident >= after.megabytes > 50
    assert after.descriptors == before.descriptors + 5 and after.threads == before.threads + 1
    assert (twice.descriptors, twice.threads) == (2 * after.descriptors, 2 * after.threads)


def test_processor_time_is_counted_with_that_of_children_that_ended() -> None:
    before = processor_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert processor_seconds(os.getpid()) - before >= 0.28


def test_a_meter_counts_from_one_reading_to_the_next() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        meter = Meter({"own": [os.getpid()], "other": [child.pid]})
        until = time.process_time() + 0.3
        while time.process_time() < until:
            pass
        first, second = meter.milliseconds(), meter.milliseconds()
    finally:
        child.communicate()
    assert first["own"] >= 280 > first["other"]
    assert second["own"] < 100
