"""What docs/start/languages.md says of the wire is what the code does."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ERRORS = ROOT / "server" / "runekeep_server" / "protocol" / "errors.py"
PAGE = ROOT / "docs" / "start" / "languages.md"
SOURCES = {
    "node": "examples/node/*.js",
    "typescript": "clients/typescript/src/*.ts",
    "go": "clients/go/transport.go",
    "java": "clients/java/src/main/java/dev/runekeep/client/*.java",
}


def rows(heading: str) -> set[str]:
    """The words in code style that stand in the first column of the tables below a heading."""
    section = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert section, heading
    return set(re.findall(r"^\| `([\w-]+)`", section[1], re.MULTILINE))


def words(*folders: str) -> Iterator[str]:
    """The string literals of the code in these folders."""
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                match node:
                    case ast.Constant(value=str(word)):
                        yield word


def test_the_metadata_keys_are_those_of_the_code() -> None:
    keys = {word for word in words("server", "extractor", "runekeep/client") if re.fullmatch("x-runekeep-[a-z]+", word)}
    assert rows("Metadata") == keys | {"authorization", "traceparent"}


def test_the_details_of_errors_are_those_that_the_server_makes() -> None:
    source = ROOT / "server" / "runekeep_server" / "protocol" / "api_error.py"
    made = set(re.findall(r"error_details_pb2\.(\w+)\(", source.read_text()))
    assert len(made) > 3
    assert rows("Errors") == made


@pytest.mark.parametrize("language", SOURCES)
def test_the_variables_are_those_that_a_client_reads(language: str) -> None:
    text = "".join(file.read_text() for file in ROOT.glob(SOURCES[language]))
    named = set(re.findall(r"RUNEKEEP_[A-Z]+(?:_[A-Z]+)*", text))
    assert named - {"RUNEKEEP_ADDRESS"} == rows("Keys and TLS")
