"""Our own labelled sentences, with the embedder that servers run."""

from datetime import date

import pytest

from extractor.offline.classify import Statement, classify, stored_from
from extractor.offline.likeness import ByMeaning, ByWords
from extractor.offline.sentences import Sentence
from tests.unit.extractor.embedding_job import EmbeddingJob

LABELLED = {
    "profile": [
        "I'm a backend engineer and I live in Porto with my wife.",
        "I have two kids and a lot of patience.",
        "I grew up on a farm in the north of Norway.",
        "I am allergic to shellfish.",
        "My native language is Basque.",
        "I work as a midwife at the city hospital.",
    ],
    "preferences": [
        "I prefer tabs over spaces.",
        "I can't stand crowded beaches.",
        "My favorite breakfast is porridge with honey.",
        "I really enjoy baking bread on Sundays.",
        "I like my reports short and without jargon.",
        "I'd rather take the bus than drive.",
    ],
    "entities": [
        "My sister Clara works as a vet in Bergen.",
        "Our project Falcon is written in Go.",
        "My dog Max is three years old.",
        "The billing service runs on two machines in Frankfurt.",
        "My boss Peter owns a sailing boat.",
    ],
    "events": [
        "I went to a jazz concert yesterday.",
        "We adopted a kitten last week.",
        "I signed up for a pottery class.",
        "We decided to move the service to Rust.",
        "I started a new job on 2023-05-01.",
        "Last year I hiked across Iceland with two friends.",
        "Next month I am flying to Lisbon for a conference.",
    ],
    "none": [
        "Hey, good to see you!",
        "Thanks so much, that really helps.",
        "How have you been?",
        "What do you think about this?",
        "Wow, that's amazing!",
        "You are doing great, keep it up!",
        "That sounds like a lot of fun.",
        "Talk to you soon, take care!",
        "Haha, that is so funny.",
        "I totally agree with you.",
        "Sure, no problem.",
        "Good luck with everything!",
        "Can you tell me more?",
        "Why did the chicken cross the road?",
        "Congratulations on your success!",
        "That's a beautiful photo.",
    ],
}
ALL = [(text, kind) for kind, texts in LABELLED.items() for text in texts]


@pytest.fixture
async def likeness(embedder):
    job = EmbeddingJob([])
    job.embedder = embedder
    return ByMeaning(job, {})


def said(text: str, *, assistant: bool = False) -> Sentence:
    return Sentence(text, 1, 0, "Ana", "", assistant, date(2023, 5, 8))


def stored_kind(statement: Statement, least: float) -> str:
    return statement.kind if statement.salience >= least else "none"


async def test_statements_are_sorted_and_talk_is_left_out(likeness):
    await likeness.learn([text for text, _ in ALL])
    statements = classify([said(text) for text, _ in ALL], likeness)
    found = {
        text: stored_kind(statement, stored_from(likeness))
        for (text, _), statement in zip(ALL, statements, strict=True)
    }
    assert {text for text, kind in ALL if kind == "none" and found[text] != "none"} == set()
    wrong = {text: found[text] for text, kind in ALL if found[text] != kind}
    assert len(wrong) <= 2, wrong


async def test_without_an_embedder_less_is_stored_and_still_no_talk():
    likeness = ByWords()
    statements = classify([said(text) for text, _ in ALL], likeness)
    stored = {
        text
        for (text, _), statement in zip(ALL, statements, strict=True)
        if stored_kind(statement, stored_from(likeness)) != "none"
    }
    assert stored & set(LABELLED["none"]) == set()
    assert len(stored) >= 10


@pytest.mark.parametrize(
    "text",
    [
        "It is important to drink enough water every day.",
        "I think you will love the mountains in spring.",
        "I prefer to answer in short sentences.",
        "Here is what I found about your question.",
        "Did I book the flight for 2023-06-01?",
    ],
)
async def test_what_an_agent_says_of_itself_or_in_general_is_no_fact(likeness, text):
    await likeness.learn([text])
    (statement,) = classify([said(text, assistant=True)], likeness)
    assert statement.kind == "none"


async def test_what_an_agent_did_for_the_user_is_an_event(likeness):
    text = "I booked your flight to Lisbon for 2023-06-01."
    await likeness.learn([text])
    (statement,) = classify([said(text, assistant=True)], likeness)
    assert (statement.kind, statement.dated.when) == ("events", "2023-06-01")


async def test_other_languages_give_no_garbage(likeness):
    texts = ["今天天气怎么样？", "谢谢你，再见。", "¿Cómo estás?", "Merci beaucoup, à bientôt !", "Wie geht es dir?"]
    await likeness.learn(texts)
    statements = classify([said(text) for text in texts], likeness)
    assert [stored_kind(statement, stored_from(likeness)) for statement in statements] == ["none"] * len(texts)
