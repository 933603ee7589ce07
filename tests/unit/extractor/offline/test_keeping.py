"""What the engine without a model keeps of talk, where, under which name, and what it leaves to the passages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runekeep_extractor.offline import OfflineEngine
from tests.doubles.fixed_job import FixedJob, message
from tests.unit.extractor.embedding_job import Space

CHECKOUT = Path(__file__).parents[4]


async def told(*commits: str) -> tuple[Space, list[list[str]]]:
    """Has the engine work on one commit after the other, a day each from 5 March 2026, in one space."""
    space = Space()
    kinds = []
    for place, text in enumerate(commits, 1):
        job = FixedJob([message(place, text, speaker="Ana", day=4 + place)], space.memories())
        output = await OfflineEngine().extract(job)
        assert output.skipped_rules == {}
        space.apply(output)
        kinds.append([operation.WhichOneof("operation") or "" for operation in output.operations])
    return space, kinds


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("Hi there! I live in Porto.", "profile.md"),
        ("I'm a nurse at the city hospital.", "profile.md"),
        ("I have been teaching for eleven years.", "profile.md"),
        ("I'm allergic to cobalt dust.", "profile.md"),
        ("We have two kids.", "profile.md"),
        ("I want to open a bakery one day.", "profile.md"),
        ("My sister lives in Ghent.", "profile.md"),
        ("My sister Clara lives in Oslo.", "entities/Clara.md"),
        ("The shop is called Kleiwerk.", "entities/Kleiwerk.md"),
        ("I prefer tea to coffee.", "preferences/Tea.md"),
        ("I really love hiking in the mountains.", "preferences/Hiking in the mountains.md"),
        ("My favourite colour is teal.", "preferences/Colour.md"),
        ("From now on always answer in German.", "preferences/German.md"),
        ("And I always want prices in euros.", "preferences/Prices in euros.md"),
        ("We decided to move the blog to Hugo.", "events/Blog.md"),
        ("I'm flying to Oslo on 20 March.", "events/2026-03-20_Oslo.md"),
        ("The new kiln arrives on 16 March.", "events/2026-03-16_Kiln.md"),
        ("Yesterday I went to a pottery workshop.", "events/2026-03-04_Pottery workshop.md"),
    ],
)
async def test_what_is_plainly_stated_is_kept(text, path):
    space, kinds = await told(text)
    assert space.paths() == [f"memories/{path}"]
    assert kinds == [["write"]]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("Remember that the wifi password is tulip42.", "entities/Wifi password.md"),
        ("Please remember: I take my pills at nine.", "profile.md"),
        ("Can you remember that I'm allergic to nuts?", "profile.md"),
        ("For future reference: the printer stands in room 12.", "entities/Printer stands in room 12.md"),
        ("Don't forget that my sister Clara is maybe moving to Oslo.", "entities/Clara.md"),
        ("Please remember the following:\n- I prefer aisle seats.", "preferences/Aisle seats.md"),
    ],
)
async def test_what_somebody_asks_to_remember_is_kept(text, path):
    space, _ = await told(text)
    assert space.paths() == [f"memories/{path}"]


@pytest.mark.parametrize(
    "text",
    [
        "Do I live in Porto?",
        "Maybe I will move to Porto next year.",
        "If I lived in Porto, I would surf.",
        "My boss said that he lives in Porto.",
        "I live in Porto, just kidding.",
        "Translate this into German: I live in Porto.",
        "Write a story about a baker. I live in Porto and I love cheese.",
        "> I live in Porto.",
        "```\nI live in Porto.\n```",
        "You live in Porto.",
        "Porto lies by the sea.",
        "I'm so tired right now.",
        "I love it!",
        "I love your new job!",
        "Thanks, I like how you did that.",
        "I'm a bit late.",
        "Book a table for two on 20 March.",
        "She is a vet in Oslo.",
        "Ich wohne in Leipzig und arbeite als Tischler.",
        "我住在成都，是一名小学老师。",
    ],
)
async def test_everything_else_is_left_to_the_passages(text):
    space, _ = await told(text)
    assert space.paths() == []


async def test_a_sentence_that_states_two_things_becomes_two_lines():
    space, _ = await told("I am Mara, I live in Ghent and I work as a ceramics teacher.")
    assert space.text("memories/profile.md").split("\n")[2:] == [
        "- Ana (2026-03-05): I am Mara",
        "- Ana (2026-03-05): I live in Ghent",
        "- Ana (2026-03-05): I work as a ceramics teacher.",
    ]


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("I am allergic to peanuts.", "I am allergic to peanuts."),
        ("I am allergic to peanuts.", "Don't forget that I'm allergic to peanuts."),
        ("My sister Clara lives in Oslo.", "Oh, and my sister Clara lives in Oslo."),
    ],
)
async def test_a_fact_said_in_two_commits_is_one_memory(first, again):
    space, kinds = await told(first, again)
    assert kinds == [["write"], []]
    assert len(space.paths()) == 1


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ("I live in Ghent with my sister.", "I moved from Ghent to Bruges.", "memories/profile.md"),
        ("I'm 41 years old.", "I just turned 42.", "memories/profile.md"),
        ("I work at Siemens.", "I no longer work at Siemens.", "memories/profile.md"),
        ("I have been teaching for 11 years.", "I have been teaching for 12 years, not 11.", "memories/profile.md"),
        ("I prefer tea.", "I now prefer coffee, not tea.", "memories/preferences/Tea.md"),
        ("I love jazz concerts.", "I don't love jazz concerts any more.", "memories/preferences/Jazz concerts.md"),
    ],
)
async def test_a_changed_fact_is_an_update(before, after, path):
    space, kinds = await told(before, after)
    assert kinds == [["write"], ["edit"]]
    assert after in space.text(path)
    assert before not in space.text(path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I have two cats and a garden.", "I have three dogs and a boat."),
        ("I prefer tea.", "I prefer trains, not planes."),
        ("I have been coaching for 11 years.", "I have been teaching for 12 years, not 11."),
        ("I work at Siemens as an engineer.", "Actually, I met an engineer of Siemens."),
    ],
)
async def test_in_doubt_both_statements_stay(before, after):
    space, _ = await told(before, after)
    text = "\n".join(space.text(path) for path in space.paths())
    assert before in text


async def test_what_somebody_asks_to_forget_is_taken_out():
    space, _ = await told("I live in Ghent. I work as a teacher.", "Please forget that I live in Ghent.")
    assert space.text("memories/profile.md") == "# User profile\n\n- Ana (2026-03-05): I work as a teacher."


def test_the_hash_seed_changes_nothing():
    """Two processes with seeds of their own write the same bytes."""
    script = """
import asyncio, hashlib
from runekeep_extractor.offline import OfflineEngine
from tests.bench.offline.score import LABELLED, load
from tests.doubles.fixed_job import FixedJob, message

lines = load(LABELLED.with_name("development.jsonl"))
said = [message(n, line.text, speaker=line.speaker) for n, line in enumerate(lines, 1)]
output = asyncio.run(OfflineEngine().extract(FixedJob(said)))
made = [one.SerializeToString(deterministic=True) for one in (*output.operations, output.summary)]
print(len(made), hashlib.sha256(b"".join(made)).hexdigest())
"""
    digests = set()
    for seed in ("1", "2"):
        made = subprocess.run(
            [sys.executable, "-c", script],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        count, digest = made.stdout.decode().splitlines()[-1].split()
        assert int(count) > 20
        digests.add(digest)
    assert len(digests) == 1
