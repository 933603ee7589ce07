"""What a later statement replaces, and what it leaves alone."""

import pytest

from extractor.offline import OfflineEngine
from extractor.offline.classify import classify
from extractor.offline.corrections import may_correct
from extractor.offline.likeness import ByWords
from extractor.offline.sentences import sentences_of
from extractor.offline.subjects import subject_of
from tests.doubles.fixed_job import message
from tests.unit.extractor.embedding_job import EmbeddingJob, Space


@pytest.fixture(params=["embedder", "rules"])
def kept(request):
    """What a space says in the end of commits, each a text, or texts said one after the other."""
    embedder = request.getfixturevalue("embedder") if request.param == "embedder" else None

    async def run(*commits: str | tuple[str, ...]) -> str:
        space, sequence = Space(), 0
        for day, commit in enumerate(commits, 5):
            said = []
            for text in (commit,) if isinstance(commit, str) else commit:
                sequence += 1
                said.append(message(sequence, text, speaker="Mara", day=day))
            job = EmbeddingJob(said, space.memories())
            job.embedder = embedder
            space.apply(await OfflineEngine().extract(job))
        return "\n".join(space.text(path) for path in space.paths())

    return run


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # An addition.
        ("I am allergic to peanuts.", "Actually, I am also allergic to shellfish."),
        ("I am allergic to peanuts.", "Correction: I am allergic to shellfish too."),
        ("I am allergic to peanuts.", "I was wrong, I am allergic to shellfish as well."),
        # Somebody else.
        ("My sister Ana lives in Oslo.", "Actually, my sister Eva lives in Rome."),
        ("My sister Ana lives in Oslo.", "Correction: my sister Eva lives in Rome."),
        ("My sister Ana lives in Oslo.", "My sister Eva moved to Rome last month."),
        ("I work as a nurse in Porto.", "Actually, my wife works as a nurse in Lisbon."),
        ("I work as a nurse in Porto.", "Correction: my wife works as a nurse in Porto, not in Lisbon."),
        ("My wife works as a nurse in Porto.", "Correction: I work as a nurse in Lisbon."),
        ("My dog Rex is three years old.", "Correction: my cat Tom is four years old."),
        # A weak cue.
        ("I am allergic to peanuts.", "Actually, I am allergic to shellfish."),
        ("I work as a nurse in Porto.", "Now I work as a nurse and a teacher in Porto."),
        # Another thing is denied than was said.
        ("I work as a nurse in Porto.", "I work as a nurse in Lisbon, not in Faro."),
        ("I live in Paris with my sister.", "I no longer like Paris."),
        # A move ends no job.
        ("I work as a nurse in Porto.", "I moved to Lisbon."),
        # One of several facts.
        ("I live in Paris and I have two sons.", "I no longer live in Paris, I moved to Lyon."),
        ("I live in Paris, and my sister has a farm.", "Correction: I live in Lyon, not in Paris."),
    ],
)
async def test_what_is_not_taken_back_stays(kept, before, after):
    assert before in await kept(before, after)


# Words alone tell too little: there more is kept beside the new.
@pytest.mark.parametrize("kept", ["embedder"], indirect=True)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I live in Paris.", "I no longer live in Paris, I moved to Lyon."),
        ("I work as a nurse in Porto.", "Correction: I work as a nurse in Lisbon."),
        ("My sister Ana lives in Oslo.", "My sister Ana moved to Rome."),
        ("Our project Falcon is written in Go.", "Correction: Falcon is written in Rust, not in Go."),
        ("I have two cats and a garden.", "Correction: I have three cats and a garden, not two."),
    ],
)
async def test_what_is_plainly_taken_back_is_replaced(kept, before, after):
    text = await kept(before, after)
    assert after in text
    assert before not in text


async def test_the_correction_of_one_fact_of_several_is_kept_beside_them(kept):
    text = await kept("I live in Paris and I have two sons.", "I no longer live in Paris, I moved to Lyon.")
    assert text.count("two sons") == text.count("moved to Lyon") == 1
    both = ("I live in Paris and I have two sons.", "I no longer live in Paris, I moved to Lyon.")
    assert "two sons" in await kept(both)


@pytest.mark.parametrize(
    "commit",
    [
        "I adopted a cat last Monday. Sorry, that was not a cat but a dog.",
        ("I adopted a cat last Monday.", "Sorry, that was not a cat but a dog."),
    ],
)
async def test_a_correction_that_only_points_is_kept_behind_what_it_corrects(kept, commit):
    text = await kept(commit)
    assert text == "Mara (2026-03-05): I adopted a cat last Monday (2026-03-02). Sorry, that was not a cat but a dog."


@pytest.mark.parametrize("text", ["No wait, that was my brother.", "She told me she got promoted."])
async def test_what_points_at_nothing_is_left_out(kept, text):
    assert await kept(text) == ""


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("I live here.", "Actually, we moved.", True),
        ("My sister Ana lives here.", "No, my sister Eva lives here.", False),
        ("My sister Ana lives here.", "Ana moved away.", True),
        ("My sister Ana lives here.", "My sister lives there.", True),
        ("My sister lives here.", "His sister lives here.", False),
        ("My dog is old.", "My sister's dog is old.", False),
        ("The new kiln arrives today.", "Correction: the old kiln arrives today.", False),
        ("The new kiln arrives today.", "Scratch that: the kiln arrives tomorrow.", True),
        ("The new kiln arrives today.", "Correction: it arrives tomorrow.", True),
        ("I live here.", "Correction: it arrives tomorrow.", False),
        ("On Monday I start.", "Last week my wife started.", False),
        ("In March I start.", "I start now.", True),
    ],
)
def test_subjects_are_told_apart(one, other, same):
    assert subject_of(one).may_be(subject_of(other)) is same
    assert subject_of(other).may_be(subject_of(one)) is same


@pytest.mark.parametrize("word", ["auch", "también", "aussi", "anche", "ook", "também", "też", "тоже"])
def test_an_addition_is_known_in_other_languages(word):
    sentences, _ = sentences_of([(message(1, f"Correction: I like tea. Correction: I like {word} tea."), "")])
    plain, added = classify(sentences, ByWords())
    assert may_correct(plain)
    assert not may_correct(added)
