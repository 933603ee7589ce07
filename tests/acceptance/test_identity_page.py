"""The page about identity: its scripts run as they stand, its tables are those of the code and the contract."""

import re
from pathlib import Path

import pytest

from runekeep.v1 import admin_service_pb2
from runekeep_server.identity import Scope
from runekeep_server.settings import Settings
from tests.acceptance.test_docs_tls import Shell
from tests.support.pages import DOCS, first_cells, section

PAGE = DOCS / "operate" / "identity.md"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_scripts_of_the_page_run_as_they_stand(shell: Shell) -> None:
    shell.run(PAGE, "first.sh")
    assert (shell.directory / "admin.key").stat().st_mode & 0o077 == 0
    with shell.running(PAGE, "up.sh", "Serving on") as said:
        listed = shell.run(PAGE, "make.sh")
        assert "acme/ada" in listed and "laptop" in listed
        assert "viking://user/ada/sessions/monday" in shell.run(PAGE, "use.sh")
        changed = shell.run(PAGE, "change.sh")
        assert "nobody can show it again" in changed and "is valid until" in changed
        assert "Revoked" in changed and "revoked" in changed
        audited = shell.run(PAGE, "audit.sh")
        for method in ("CreateApiKey", "RotateApiKey", "RevokeApiKey"):
            assert f"AdminService/{method}" in audited
        log = said.read_text()
    for name in ("admin.key", "worker.key", "ada.key"):
        key = (shell.directory / name).read_text().strip()
        assert len(key) >= 32 and key[20:] not in log


def test_the_words_of_the_page_are_those_of_the_code() -> None:
    assert first_cells(section(PAGE, "Scopes")) == {scope.value for scope in Scope}
    words = {name.removeprefix("SCOPE_").lower() for name in admin_service_pb2.Scope.keys()}  # noqa: SIM118 (an enum is no dict)
    assert first_cells(section(PAGE, "Scopes")) == words - {"unspecified"}
    modes = Settings.model_json_schema()["properties"]["identity_mode"]["enum"]
    assert first_cells(PAGE.read_text().partition("## Scopes")[0]) == set(modes)


def test_the_variables_of_the_page_are_settings() -> None:
    named = set(re.findall(r"RUNEKEEP_([A-Z_]+)", PAGE.read_text()))
    settings = {name.upper() for name in Settings.model_fields}
    assert named - settings == {"ADDRESS", "API_KEY", "EXTRACTOR_API_KEY"} - settings
