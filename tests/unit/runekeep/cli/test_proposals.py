"""`runekeep proposal ...`: only what was shown is applied."""

from typing import Any

from typer.testing import CliRunner

from runekeep.cli.app import app
from runekeep.v1 import proposal_service_pb2 as wire
from runekeep.v1 import session_service_pb2
from tests.unit.runekeep.server_double import ServerDouble

TEA = "viking://user/u/memories/preferences/Tea.md"


def accept(server: ServerDouble, *numbers: str) -> Any:
    runner = CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1"})
    result = runner.invoke(app, ["proposal", "accept", "t", *numbers, "--address", server.address], input="y\n")
    assert result.exit_code == 0, result.output
    return result


def test_operations_that_are_too_long_to_show_are_applied_only_if_they_are_named(server: ServerDouble) -> None:
    shown = wire.ProposedOperation(
        number=1,
        state=wire.DECISION_STATE_OPEN,
        action=wire.PROPOSED_ACTION_WRITE,
        changes=[session_service_pb2.MemoryChange(uri=TEA, after="Likes tea.")],
    )
    omitted = wire.ProposedOperation(
        number=2,
        state=wire.DECISION_STATE_OPEN,
        action=wire.PROPOSED_ACTION_DELETE,
        uris=[TEA],
        texts_omitted=True,
    )
    proposal = wire.Proposal(task_id="t", open_operations=2, total_operations=2)
    answer = wire.GetProposalResponse(
        proposal=proposal, operations=[shown, omitted], newest_revision=4, texts_omitted=True
    )
    server.script("GetProposal", answer, answer)
    server.script("AcceptProposal", *[wire.AcceptProposalResponse(proposal=proposal)] * 2)
    told = accept(server).stdout
    assert "Not shown, because it is too long" in told and "there already" not in told
    accept(server, "2")
    assert [list(one.numbers) for one in server.requests("AcceptProposal")] == [[1], [2]]
