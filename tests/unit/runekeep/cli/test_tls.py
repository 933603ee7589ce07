"""What commands say when certificates or keys stand in the way: one line that says what to do, and no trace."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from runekeep.cli.app import app
from tests.support.certificates import LOCAL, Authority

KEY = "rk_abcdefghijklmnop_" + "s" * 43


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def port(authority: Authority) -> Iterator[int]:
    """Of a server over TLS that knows no method."""
    with ThreadPoolExecutor(1) as threads:
        server, pair = grpc.server(threads), authority.issue(*LOCAL)
        credentials = grpc.ssl_server_credentials([(pair.key, pair.certificate)])
        bound = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        yield bound
        server.stop(None).wait()


def said(address: str, **variables: str) -> str:
    environment = {"COLUMNS": "80", "NO_COLOR": "1"} | {f"RUNEKEEP_{name}": value for name, value in variables.items()}
    result = CliRunner(env=environment).invoke(app, ["task", "show", "t", "--address", address])
    assert result.exit_code == 1 and result.exception.__class__ is SystemExit, result.output
    return " ".join(result.output.split())


def test_an_authority_that_is_not_known(port: int, tmp_path: Path) -> None:
    other = Authority("other").write(tmp_path)
    output = said(f"https://127.0.0.1:{port}", CA_FILE=str(other))
    assert f"The certificate of 127.0.0.1:{port} comes from no authority that {other} holds." in output
    assert "Is a server running there?" not in output


def test_a_key_that_would_go_over_the_network_in_plain_text(port: int) -> None:
    output = said("memory.example.org:7433", API_KEY=KEY)
    assert "error: The key would go to memory.example.org:7433 in plain text" in output and KEY not in output


def test_a_file_that_is_not_there(port: int) -> None:
    assert "error: none.pem cannot be read: No such file or directory" in said("127.0.0.1:1", CA_FILE="none.pem")


def test_a_server_that_answers_over_tls(port: int, authority: Authority, tmp_path: Path) -> None:
    assert "UNIMPLEMENTED" in said(f"127.0.0.1:{port}", CA_FILE=str(authority.write(tmp_path)), API_KEY=KEY)


def test_no_command_takes_a_key_as_an_argument() -> None:
    """Arguments are shown by `ps` to every user of the machine."""
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["task", "show", "--help"])
    assert "--address" in result.output and "https://HOST:PORT" in result.output
    assert "key" not in result.output.lower()
