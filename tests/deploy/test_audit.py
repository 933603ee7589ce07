"""Runs `make audit` with the real pip-audit and a double of OSV, which is out of reach where Runekeep is developed."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.tools import DEPLOY, SECONDS, Missing
from tests.support.ports import free_port

pytestmark = pytest.mark.deploy

PYTHON = Path(sys.prefix) / "audit" / "bin" / "python"
LOCK = f"""\
first==1.0 --hash=sha256:{"1" * 64}
second==2.0 ; python_version >= '3.11' \\
    --hash=sha256:{"2" * 64} \\
    --hash=sha256:{"3" * 64}
"""


class Osv(ThreadingHTTPServer):
    """A double of OSV. `vulnerable` holds vulnerability ids by package and version, `status` is the status of every
    answer, and `asked` collects the packages that were asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.vulnerable: dict[tuple[str, str], str] = {}
        self.status = 200
        self.asked: set[tuple[str, str]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/query"


class _Handler(BaseHTTPRequestHandler):
    server: Osv

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["content-length"])))
        package = (query["package"]["name"], query["version"])
        self.server.asked.add(package)
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(json.dumps(self._answer(package)).encode())

    def _answer(self, package: tuple[str, str]) -> dict[str, Any]:
        if package not in self.server.vulnerable:
            return {}
        name, _ = package
        affected = {
            "package": {"name": name, "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "9.1"}]}],
        }
        return {"vulns": [{"id": self.server.vulnerable[package], "summary": "a hole", "affected": [affected]}]}

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


@pytest.fixture
def osv() -> Iterator[Osv]:
    with Osv() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    file = tmp_path / "some.lock"
    file.write_text(LOCK)
    return file


def audit(lock: Path, url: str) -> subprocess.CompletedProcess[str]:
    if not PYTHON.exists():
        raise Missing("pip-audit is missing: `make test-deploy` installs it")
    command = [str(PYTHON), str(DEPLOY / "audit.py"), "--lock", str(lock), "--osv-url", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_every_locked_package_is_asked_for(lock: Path, osv: Osv) -> None:
    ended = audit(lock, osv.url)
    assert (ended.returncode, ended.stdout) == (0, "2 packages, 0 known vulnerabilities\n"), ended.stderr
    assert osv.asked == {("first", "1.0"), ("second", "2.0")}


def test_a_known_vulnerability_is_named(lock: Path, osv: Osv) -> None:
    osv.vulnerable["second", "2.0"] = "PYSEC-2026-1"
    ended = audit(lock, osv.url)
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout.startswith("second 2.0: PYSEC-2026-1, fixed in 9.1\n")


def test_a_source_that_does_not_answer_is_no_good_news(lock: Path, osv: Osv) -> None:
    osv.status = 503
    for url in (osv.url, f"http://127.0.0.1:{free_port()}/v1/query"):
        ended = audit(lock, url)
        assert ended.returncode == 75 and ended.stdout == "", ended.stdout
        assert ended.stderr.startswith(f"NOT AUDITED: {url} cannot be used: ")


def test_a_lock_without_hashes_is_not_audited(lock: Path, osv: Osv) -> None:
    lock.write_text("first==1.0\n")
    assert audit(lock, osv.url).returncode == 75
