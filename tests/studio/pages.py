"""The studio of the browser tests: real processes, an extracted conversation, and the addresses of all pages."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runekeep import Client, ContextPart, ImagePart, Message, TextPart, ToolPart
from runekeep.transcripts.files import read_transcript
from tests.acceptance.processes import environment
from tests.support.studio import ATTACK

ROOT = Path(__file__).parents[2]
USER = "mara"
IMAGE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAYAAACNMs+9AAAAFUlEQVR42mNk+M9Qz0AEYBxVSF+FABJADveWkH6o"
    "AAAAAElFTkSuQmCC"
)
PREFERENCES = f"viking://user/{USER}/memories/preferences"

PAGES = {
    "overview": "/",
    "sessions": "/sessions",
    "session": "/sessions/studio-monday/archives/1",
    "task": "/tasks/{task}",
    "tasks": "/tasks",
    "commit": "/sessions/studio-next-week/commits/1",
    "tree": f"/tree?uri=viking://user/{USER}/memories&as_of=2",
    "memory": f"/memory?uri=viking://user/{USER}/memories/profile.md",
    "edit": f"/memory/edit?uri=viking://user/{USER}/memories/profile.md",
    "search": "/search?q=When+does+the+kiln+arrive&limit=5",
    "why": f"/search?q=When+does+the+kiln+arrive&limit=3&why=viking://user/{USER}/memories/profile.md#why",
    "recall": "/recall?q=What+should+I+know+about+the+web+shop&budget=400",
    "history": "/history",
    "difference": "/history/diff?from=2&to=4",
    "rollback": "/history/4/rollback",
    "proposals": "/proposals?decided=yes",
    "proposal": "/proposals/{task}",
    "turns": "/sessions/garden/turns",
    "data": "/data",
    "status": "/operator",
    "accounts": "/operator/accounts",
    "keys": "/operator/keys",
    "audit": "/operator/audit",
    "error": "/memory?uri=viking://user/somebody/memories/profile.md",
    "help": "/help",
}


@contextmanager
def running_studio(server: str, *arguments: str) -> Iterator[str]:
    """The command `runekeep studio` as a process. Yields its link."""
    command = [sys.executable, "-P", "-m", "runekeep", "studio", "--json", "--address", server]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", *arguments], env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the studio did not start"
        yield json.loads(line)["studio"].rstrip("/")
    finally:
        process.terminate()
        assert process.wait(30) == 0
        process.stdout.close()


def remember(client: Client) -> str:
    """Extracts the sample conversation, a turn with a fingerprint, and a proposal. Returns the id of the last task."""
    task = ""
    for batch in read_transcript(ROOT / "examples" / "conversation.jsonl"):
        session = client.session(batch.session_id)
        session.add_messages(batch.messages)
        committed = session.commit({"self": {"enabled": True}, "peer": {"enabled": True}})
        task = committed["task_id"]
        assert client.wait_task(task)["status"] == "completed"
    garden = client.session("garden")
    garden.add_messages(
        [Message(role="user", parts=[TextPart("I need a pump for a pond of 3,000 litres.")], turn_id="turn-1")]
    )
    fingerprint = {
        "objective": "Find a pump for a pond",
        "topics": ["pond", "pump"],
        "facts": [{"key": "pond.litres", "value": 3000, "severity": "high"}],
        "assertions": [{"key": "budget.cap", "value": {"max": 120}, "severity": "must"}],
        "assistant_signals": [{"key": "pump", "value": "AquaSilent 3000", "severity": "recommend"}],
    }
    garden.submit_turn("turn-1", fingerprint=fingerprint)
    return review(client, "breakfast", "I prefer rye bread for breakfast.")


def review(client: Client, name: str, *said: str) -> str:
    """Commits a session whose operations wait for review. Returns the id of the task."""
    session = client.create_session(name, memory_policy={"review": "all"})
    session.add_messages([Message(role="user", parts=[TextPart(text)]) for text in said])
    task = session.commit()["task_id"]
    assert client.wait_task(task)["result"]["outcome"] == "held_for_review"
    return task


def attack(client: Client) -> None:
    """Puts a text that would like to run into a session and a memory."""
    session = client.create_session("attack", title=ATTACK[:200])
    parts = [
        TextPart(ATTACK),
        ImagePart(IMAGE, caption=ATTACK),
        ImagePart("https://evil.example/i.png", caption=ATTACK),
    ]
    tool = ToolPart(tool_id="t1", tool_name=ATTACK[:250], input={ATTACK: ATTACK}, output=ATTACK, status="completed")
    session.add_messages(
        [
            Message(role="user", speaker=ATTACK[:120], parts=parts),
            Message(role="assistant", parts=[ContextPart(f"{PREFERENCES}/Attack.md", ATTACK), tool]),
        ]
    )
    client.put_memory("preferences", {"topic": "Attack", "content": ATTACK}, abstract=ATTACK)
