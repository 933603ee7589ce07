"""Errors of the server name calls; the command line names commands in their place."""

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from runekeep.cli.app import app
from runekeep.cli.common.api_words import COMMANDS, in_command_words
from runekeep.methods import rules_of
from runekeep.v1 import method_options_pb2
from tests.unit.runekeep.server_double import METHODS

WITHOUT_COMMAND = {"GetActivity"}
"""Calls that the studio alone makes."""


def called_by_people() -> Iterator[str]:
    audiences = (method_options_pb2.AUDIENCE_USERS, method_options_pb2.AUDIENCE_ADMINS)
    yield from (method.name for method in METHODS.values() if rules_of(method).audience in audiences)


def test_every_call_of_the_contract_has_a_command() -> None:
    assert set(called_by_people()) == COMMANDS.keys() | WITHOUT_COMMAND


@pytest.mark.parametrize("path", sorted(set(COMMANDS.values())))
def test_the_commands_exist(path: str) -> None:
    command: Any = get_command(app)
    names = [word for word in path.split() if not word.startswith("--")]
    for name in names:
        command = command.commands[name]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in path.split() if word.startswith("--")} <= known


def test_calls_become_commands_and_uris_stay() -> None:
    told = in_command_words("See GetProposal of `viking://user/GetProposal.md`. RollbackRevision takes it back.")
    assert told == (
        "See `runekeep proposal show` of `viking://user/GetProposal.md`. `runekeep history rollback` takes it back."
    )
