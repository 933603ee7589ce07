"""An agent of three steps with turn memory: a gate, a reconciler and the one that writes the answer.

    python examples/turn_agent.py                            # starts a server and extractors of its own
    python examples/turn_agent.py --address 127.0.0.1:7433   # uses a `runekeep up` that runs

The steps are rules instead of models, so that it runs without a key; each knows nothing but the user's message and the
context that it loads, as a model would. The garden shop's customer speaks six times: changes the subject, comes back to
it, complains, gives thanks, and goes on in another conversation. Ends with 0 when what was said earlier held later on.
"""

import argparse
import json
import re
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo import DemoFailed, console, heading, running
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from runekeep import Client, RunekeepError, Session, TextPart
from runekeep.cli.common.formats import format_count
from runekeep.cli.turns.buckets import render_bucket
from runekeep.cli.turns.reactions import describe_counts
from runekeep.client.turns.results import ReactionName, TurnContext

WAIT_SECONDS = 60


@dataclass(frozen=True)
class Theme:
    """What the shop can talk about. `offer`: what it would like to sell with it, and how hard it tries."""

    objective: str
    words: tuple[str, ...]
    offer: tuple[str, str, str]


THEMES = (
    Theme("Plant the balcony", ("balcony",), ("care_plan", "our yearly care plan", "recommend")),
    Theme("Mend the pond pump", ("pond", "pump"), ("filter_kit", "a filter kit", "mention")),
    Theme("Keep the orchid alive", ("orchid",), ("care_plan", "our yearly care plan", "recommend")),
)
SHADE_PLANTS = {"fern": 12, "hosta": 15, "ivy": 8}
"""Price in euros."""
REACTIONS: tuple[tuple[str, ReactionName, float], ...] = (
    (r"never liked|too expensive|did not help", "not_ok", 0.9),
    (r"great|worked|thank you", "ok", 0.85),
)
"""What the user says, how it is meant, how sure that is."""

MONDAY = (
    "I want to plant my balcony. It lies in the shade, and 80 euros is all I have.",
    "No ferns please, I never liked them.",
    "Something else: the pump of my pond stands still.",
    "Great, rinsing the filter worked!",
    "Back to the balcony: what shall I buy?",
)
TUESDAY = ("My orchid loses its leaves.",)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="A rule-based agent with turn memory.")
    parser.add_argument("--address", help="HOST:PORT of a server that runs; left out: one of its own")
    try:
        with serving(parser.parse_args(arguments).address) as address, Client(address, user=customer()) as client:
            show(client)
    except (DemoFailed, RunekeepError) as error:
        console.print(Text(f"\nIt failed: {error}", style="bold red"))
        return 1
    console.print(Text("\nNothing was offered twice, and nothing was forgotten.", style="bold green"))
    return 0


def show(client: Client) -> None:
    monday, tuesday = client.session("monday"), client.session("tuesday")
    answers = [
        take_turn(session, f"turn-{number}", said)
        for session, talk in ((monday, MONDAY), (tuesday, TUESDAY))
        for number, said in enumerate(talk, 1)
    ]
    bought, orchid = answers[-2], answers[-1]
    monday.feedback("turn-5", "ok", "Just what I wanted")

    heading("What an extractor adds to the last turn by itself")
    task = client.wait_task(
        tuesday.submit_turn("turn-1", extract=True, assistant_signal_spec="plans that are offered").task_id,
        timeout=WAIT_SECONDS,
    )
    expect(task.status == "completed", f"the extraction is {task.status}: {task.error}")
    summary = tuesday.get_turn("turn-1").summary
    expect(bool(summary and summary.user_inquiry), "the extractor found no inquiry")
    say("inquiry", summary.user_inquiry if summary else "")
    say("answer", summary.assistant_answer if summary else "")

    heading("What the assistant promoted, in all conversations")
    offered = [
        (one.session.rsplit("/", 1)[-1], one.turn_id, signal.key)
        for one in client.assistant_signals()
        for signal in one.signals
    ]
    table = Table("conversation", "turn", "promoted", box=None, header_style="bold", pad_edge=False)
    for row in offered:
        table.add_row(*row)
    console.print(table)

    heading("How the user liked it")
    counts = monday.list_feedback().counts
    console.print(describe_counts(counts), markup=False)

    heading("The conversation's themes, folded into buckets")
    task_id = monday.reconcile_buckets()
    if task_id:
        client.wait_task(task_id, timeout=WAIT_SECONDS)
    buckets = monday.buckets().buckets
    for bucket in buckets:
        console.print(render_bucket(bucket))

    keys = [key for _, _, key in offered]
    expect(sorted(keys) == ["care_plan", "filter_kit"], f"promoted: {keys}")
    expect("hosta" in bought and "ivy" in bought and "fern" not in bought, f"not what was wished for: {bought}")
    expect("plan" not in orchid, f"it offers again: {orchid}")
    expect((counts.machine, counts.user) == (2, 1), f"reactions: {counts}")
    expect((counts.ok, counts.not_ok) == (2, 1), f"reactions: {counts}")
    expect(bool(buckets), "there is no bucket")


def take_turn(session: Session, turn_id: str, said: str) -> str:
    """One message of the user, through all steps, to the answer."""
    heading(f"{session.session_id}, {turn_id}")
    say("user", said, "bold")
    session.add_message("user", [TextPart(said)], turn_id=turn_id)
    gate(session, turn_id, said)
    theme = reconciler(session, turn_id, said)
    return answer(session, turn_id, theme)


def gate(session: Session, turn_id: str, said: str) -> None:
    """Looks whether the user reacts to something earlier; which turn is meant, the server finds by the words."""
    seen = session.turn_context(turn_id, "gate")
    tell_seen("gate", seen)
    for pattern, reaction, confidence in REACTIONS:
        # The first message of a conversation reacts to nothing.
        if seen.candidates and re.search(pattern, said.lower()):
            noted = session.feedback(
                reaction=reaction,
                text=said,
                origin="machine",
                confidence=confidence,
                from_turn_id=turn_id,
                match_queries=[{"query": said, "target": "assistant"}],
            )
            say("", f"reads {noted.reaction} about {noted.turn_id} ({noted.objective})", "yellow")


def reconciler(session: Session, turn_id: str, said: str) -> Theme:
    """Finds out what the turn is about and says, and chooses the earlier turns that matter for it."""
    words = re.findall(r"[a-z]+", said.lower())
    theme = next((theme for theme in THEMES if set(theme.words) & set(words)), None)
    # The subject's own words bring back turns that the last three have pushed out.
    seen = session.turn_context(turn_id, "reconciler", queries=[" ".join(theme.words)] if theme else [])
    tell_seen("reconciler", seen)
    if theme is None:
        newest = seen.turn_memories[0].objective
        theme = next(theme for theme in THEMES if theme.objective == newest)
    session.submit_turn(turn_id, fingerprint={"objective": theme.objective, "topics": theme.words, **read(said)})
    related = [one.turn_id for one in seen.turn_memories if one.objective == theme.objective]
    chosen = session.select_turns(seen, local_memories_turn_ids=related, turn_ids=related).selection
    say("", f"objective: {theme.objective}", "yellow")
    say("", f"chooses {', '.join(chosen.local_memories_turn_ids) or 'no earlier turn'}", "yellow")
    return theme


def read(said: str) -> dict[str, Any]:
    """What a message says that holds later on: bounds, what is excluded, how the world is."""
    low = said.lower()
    found: dict[str, Any] = {"assertions": [], "exceptions": [], "facts": []}
    if budget := re.search(r"(\d+) euros", low):
        most = {"max": int(budget[1])}
        found["assertions"] = [{"key": "budget", "value": most, "severity": "must", "scope": "objective"}]
    if unwanted := re.search(r"\bno (\w+?)s?\b", low):
        none_of = {"exclude": [unwanted[1]]}
        found["exceptions"] = [{"key": "plants", "value": none_of, "severity": "do_not", "scope": "objective"}]
    for key, pattern in (("light", "shade"), ("pump", "stands still"), ("pump", "worked")):
        if pattern in low:
            found["facts"].append({"key": key, "value": pattern, "severity": "high"})
    return found


def answer(session: Session, turn_id: str, theme: Theme) -> str:
    """Writes the answer from the text of its context, which holds the chosen turns and what was promoted already."""
    seen = session.turn_context(turn_id, "final_answer")
    parts = {section.header.partition(" —")[0].lstrip("["): section.text for section in seen.sections}
    memories = parts.get("TURN MEMORIES", "")
    tell_seen("answer", seen)
    said = advice(theme, memories)

    key, words, severity = theme.offer
    before = promoted(parts.get("ASSISTANT SIGNALS", ""))
    signals: list[dict[str, Any]] = []
    if key in before:
        say("", f"{key} was promoted {before[key]} ago: not again", "yellow")
    else:
        said += f" You may also like {words}."
        signals = [{"key": key, "value": words, "severity": severity, "scope": "conversation"}]
        say("", f"promotes {key}", "yellow")

    session.add_message("assistant", [TextPart(said)], turn_id=turn_id)
    session.submit_turn(turn_id, fingerprint={"assistant_signals": signals}, summary={"done": [theme.objective]})
    say("agent", said, "bold")
    return said


def promoted(section: str) -> dict[str, str]:
    """How long ago each thing was promoted last, by its key; the newest turn comes first."""
    ages: dict[str, str] = {}
    age = ""
    for row in section.splitlines():
        if since := re.search(r"time_since=(\w+)$", row):
            age = since[1]
        elif signal := re.match(r"  - signal: (\w+) =", row):
            ages.setdefault(signal[1], age)
    return ages


def advice(theme: Theme, memories: str) -> str:
    """What the shop says, within what the user has said so far."""
    if theme.objective == "Mend the pond pump":
        return "Good to hear." if "pump=worked" in memories else "Take the filter out and rinse it."
    if theme.objective == "Keep the orchid alive":
        return "Water it once a week and keep it out of the sun."
    limit = re.search(r'budget=\{"max": (\d+)\}', memories)
    budget = int(limit[1]) if limit else 40
    unwanted = {name for names in re.findall(r'"exclude": (\[.*?\])', memories) for name in json.loads(names)}
    plants = {name: price for name, price in SHADE_PLANTS.items() if name not in unwanted}
    each = budget // sum(plants.values())
    cost = each * sum(plants.values())
    return f"For the shade: {each} of {' and '.join(plants)} each, {cost} of your {budget} euros."


def tell_seen(step: str, seen: TurnContext) -> None:
    memories = [one.turn_id for one in seen.turn_memories]
    pushed_out = [one for one in seen.candidates if one.matched_queries and not one.recent]
    found = [one.turn.turn_id for one in pushed_out if one.turn]
    reactions = format_count(len(seen.feedback), "reaction", "reactions")
    text = f"memories of {', '.join(memories) or 'no turn'}; {reactions}"
    if found:
        text += f"; {', '.join(found)} found by words"
    if seen.assistant_signals:
        text += f"; promotions of {format_count(len(seen.assistant_signals), 'turn', 'turns')}"
    say(step, f"sees {text}")


def say(who: str, text: str, style: str = "") -> None:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=10)
    table.add_column(overflow="fold")
    table.add_row(Text(who, style="cyan"), Text(text, style=style))
    console.print(Padding(table, (0, 0, 0, 1)))


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise DemoFailed(otherwise)


def customer() -> str:
    """A user of this run alone: what was promoted is remembered over all conversations of a user."""
    return f"customer-{uuid.uuid4().hex[:8]}"


@contextmanager
def serving(address: str | None) -> Iterator[str]:
    """The address of the server to talk to; one that is started here has ended afterwards."""
    if address:
        yield address
        return
    with tempfile.TemporaryDirectory(prefix="runekeep-turns-") as directory, running(Path(directory)) as started:
        yield started["address"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
