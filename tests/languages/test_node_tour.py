"""A client in another language, without generated code, takes the whole tour against real processes."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.processes import environment, processes
from tests.support.secured import secured
from tests.support.tours import broken_tour

NODE = Path(__file__).parents[2] / "examples" / "node"

STEPS = [
    "session", "added", "used", "refused", "refused", "turn", "committed", "ended", "tree", "document", "found",
    "recalled", "context", "history", "sources", "rolled back", "rolled forward", "exported", "deleted", "imported",
    "session deleted", "erased",
]  # fmt: skip


pytestmark = pytest.mark.languages


async def test_node_takes_the_whole_tour_with_a_key_over_tls_that_breaks(tmp_path: Path) -> None:
    with processes(tmp_path) as fleet:
        client, extractor = secured(fleet, tmp_path, "nils")
        steps = await broken_tour(fleet, ["node", "tour.js"], NODE, client, extractor)
    said = {step["step"]: step for step in steps}
    assert [step["step"] for step in steps if step["step"] not in ("event", "resumed")] == STEPS
    assert said["session"]["created"] is True and said["session"]["uri"].startswith("viking://user/nils/sessions/")
    assert said["added"]["sequences"] == [1, 2] and said["added"]["kept"] == 2
    assert said["added"]["parts"] == ["text", "image", "context", "tool", "text"]
    assert said["used"] == {"step": "used", "contexts_used": 1, "skills_used": 1}
    missing, wrong = [step for step in steps if step["step"] == "refused"]
    assert (missing["code"], missing["reason"], missing["resource"]) == ("NOT_FOUND", "RESOURCE_NOT_FOUND", "nobody")
    assert (wrong["code"], wrong["reason"]) == ("INVALID_ARGUMENT", "FIELD_INVALID")
    assert wrong["fields"] == ["messages[0].parts"]
    assert "Keep the greenhouse at 22 degrees" in said["turn"]["text"] and "reaction=ok" in said["turn"]["text"]
    assert said["ended"]["state"] == "TASK_STATE_COMPLETED"
    assert said["ended"]["memories_extracted"]["tools"] == 1

    profile = said["document"]["uri"]
    assert profile in said["tree"]["documents"] and "22 degrees" in said["document"]["text"]
    best = said["found"]["results"][0]
    assert best["uri"] == profile
    assert abs(sum(part["added"] for part in best["parts"]) - best["score"]) < 1e-3
    assert "Nils" in said["recalled"]["text"] and 0 < said["recalled"]["tokens"] <= 300
    assert 0 < said["context"]["tokens"] <= 1000

    assert [revision["number"] for revision in said["history"]["revisions"]] == [said["ended"]["revision"]]
    assert profile in said["sources"]["memories"]
    assert sorted(said["rolled back"]["deleted"]) == sorted(said["tree"]["documents"])
    assert said["rolled forward"]["changes"] == len(said["tree"]["documents"])
    assert said["exported"]["bytes"] > 1000 and said["deleted"]["sessions"] == 1
    assert (said["imported"]["sessions"], said["imported"]["messages"]) == (1, 2)
    assert said["erased"]["state"].removeprefix("ERASURE_STATE_") in ("REMOVING", "PURGING", "VERIFIED")
    assert (said["erased"]["scope"], said["erased"]["sessions_left"]) == ("ERASURE_SCOPE_USER", 0)


def test_node_never_sends_a_key_in_plain_text_to_another_machine() -> None:
    ended = subprocess.run(
        ["node", "tour.js", "192.0.2.1:7433"],
        cwd=NODE,
        env=environment({"RUNEKEEP_API_KEY": "rk_" + os.urandom(8).hex()}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1 and not ended.stdout
    assert "a key is not sent in plain text" in ended.stderr


async def test_node_needs_no_key_in_development_mode(tmp_path: Path) -> None:
    with processes(tmp_path) as fleet:
        fleet.server()
        steps = await broken_tour(fleet, ["node", "tour.js"], NODE)
    assert steps[0]["uri"].startswith("viking://user/node-tour/sessions/")
    assert steps[-1]["step"] == "erased"
