"""The offline engine over a real server: a fact said twice is one memory, and a changed one keeps its old version."""

from runekeep import Client, TextPart
from tests.acceptance.processes import Processes

WAIT_SECONDS = 90.0
PROFILE = "viking://user/ana/memories/profile.md"


def said(client: Client, session: str, *texts: str) -> dict[str, int]:
    """Commits one session. What of long-term memory it changed, by type."""
    one = client.session(session)
    for text in texts:
        one.add_message("user", [TextPart(text)], speaker="Ana")
    task = client.wait_task(one.commit()["task_id"], timeout=WAIT_SECONDS)
    assert task["status"] == "completed", task["error"]
    assert task["result"] is not None
    return dict(task["result"]["memories_extracted"])


def test_a_fact_said_twice_is_one_memory_and_a_changed_one_keeps_its_old_version(fleet: Processes):
    fleet.server()
    fleet.extractor("worker-1", "--engine", "offline")
    with Client(fleet.address, user="ana") as client:
        assert said(client, "one", "I live in Ghent with my sister.", "Hi there!") == {"profile": 1}
        assert said(client, "two", "I live in Ghent with my sister.") == {}
        assert client.get_memory(PROFILE)["version"] == 1
        assert said(client, "three", "I moved from Ghent to Bruges.") == {"profile": 1}
        now = client.get_memory(PROFILE)
        assert now["version"] == 2
        assert "I moved from Ghent to Bruges." in now["content"]
        assert "I live in Ghent" not in now["content"]
        assert "I live in Ghent with my sister." in client.get_memory(PROFILE, 1)["content"]


def test_a_remedy_that_shares_no_word_with_its_trouble_costs_no_commit(fleet: Processes):
    """A date that was written out made another text of the trouble, which the engine compared without its vector."""
    fleet.server()
    fleet.extractor("worker-1", "--engine", "offline")
    with Client(fleet.address, user="ana") as client:
        one = client.session("invoices")
        one.add_message("user", [TextPart("The invoice tests fail since yesterday's dependency bump.")], speaker="Ana")
        one.add_message("assistant", [TextPart("Which library was raised?")])
        one.add_message("user", [TextPart("I will look it up after lunch.")], speaker="Ana")
        one.add_message("assistant", [TextPart("The fix is a localcontext with prec=28 in templates/rounding.py.j2.")])
        task = client.wait_task(one.commit()["task_id"], timeout=WAIT_SECONDS)
    assert task["status"] == "completed", task["error"]
    assert task["attempt"] == 1
    assert task["result"] is not None and task["result"]["skipped_rules"] == {}
