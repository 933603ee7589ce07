"""The generated reference: what a caller must keep to stands there in words, and outdated pages are found."""

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from docs.generate import __main__ as generate
from docs.generate import cli, error_reasons, python_client
from docs.generate.contract import Page
from runekeep import Client, RunekeepError, Session
from runekeep.buf.validate import validate_pb2
from runekeep.v1 import common_pb2


def page(file: descriptor_pb2.FileDescriptorProto) -> str:
    return Page(file, {}).text()


def test_a_oneof_that_must_be_set_is_said_and_another_is_not() -> None:
    file = descriptor_pb2.FileDescriptorProto()
    common_pb2.DESCRIPTOR.CopyToProto(file)
    required = {
        (message.name, oneof.name)
        for message in file.message_type
        for oneof in message.oneof_decl
        if oneof.options.Extensions[validate_pb2.oneof].required
    }
    assert ("Part", "part") in required
    text = page(file)
    for name, oneof in required:
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert f"Exactly one of `{oneof}` is required." in section
    assert text.count("Exactly one of") == len(required)


def test_the_committed_pages_are_current() -> None:
    assert generate.outdated(generate.pages()) == [], "run: make reference"


def test_a_page_that_differs_and_one_that_is_no_longer_generated_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    reference = tmp_path / "docs" / "reference"
    (reference / "contract").mkdir(parents=True)
    (reference / "contract" / "gone.md").write_text("# Gone\n")
    (reference / "cli.md").write_text("edited by hand")
    (reference / "errors.md").write_text("current")
    made = {"docs/reference/cli.md": "generated", "docs/reference/errors.md": "current"}
    assert generate.outdated(made) == ["docs/reference/cli.md", "docs/reference/contract/gone.md"]


def test_every_public_method_and_error_of_the_client_has_an_entry() -> None:
    text = python_client.page()
    for owner, cls in (("client", Client), ("session", Session)):
        for name in (name for name in dir(cls) if not name.startswith("_")):
            assert f"### {owner}.{name}\n" in text
    errors = [cls.__name__ for cls in (RunekeepError, *RunekeepError.__subclasses__())]
    assert len(errors) > 5 and all(f"| `{name}` |" in text for name in errors)


def test_every_reason_has_a_row_with_its_code() -> None:
    text = error_reasons.page()
    reasons = [name.removeprefix("ERROR_REASON_") for name in common_pb2.ErrorReason.keys()][1:]  # noqa: SIM118 (an enum is no dict)
    assert text.count("\n| [`") == len(reasons)
    assert all(f"| [`{reason}`](../operate/errors.md#{reason.lower()}) | `" in text for reason in reasons)


def test_commands_have_their_sentences_whole() -> None:
    text = cli.page()
    assert "## runekeep memory find\n" in text
    assert not [line for line in text.splitlines() if line.startswith("* `") and line.endswith("...")]
