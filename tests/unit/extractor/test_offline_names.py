import pytest

from extractor.offline.cues import without_connective
from extractor.offline.phrases import NAME_LIMIT, short_name
from extractor.offline.topics import topic_of


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("we adopted a puppy.", "We adopted a puppy"),
        ("Yeah, we adopted a puppy!", "We adopted a puppy"),
        ("No children live here.", "No children live here"),
        ("No, the children live here.", "The children live here"),
        ("Correction: the new kiln arrives, not on 16 March.", "The new kiln arrives"),
        ("The exam is", "The exam"),
        (
            "That solved it: the file was encoded in Latin-1, and reading it with that encoding imported all orders.",
            "The file was encoded in Latin-1",
        ),
        (
            "Our cat knocked over the big blue vase which my grandmother gave to my mother.",
            "Our cat knocked over the big blue vase",
        ),
        (
            "We shipped the first nine hundred and twenty porcelain bowls to customers of the web shop.",
            "We shipped the first nine hundred",
        ),
        (
            "The nightly backup of the orders database stops with an error of the disk.",
            "The nightly backup of the orders database stops",
        ),
        ("What I turned on", "What I turned on"),
    ],
)
def test_names_are_whole_clauses_or_phrases(text, name):
    assert short_name(text) == name


@pytest.mark.parametrize("text", ["word " * 60, "x" * 300, "昨天我去了上海" * 20, "a" * 10 + " " + "b" * 200])
def test_names_are_short_and_never_empty(text):
    assert 0 < len(short_name(text)) <= NAME_LIMIT
    assert short_name(text) == short_name(text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("And I always want prices in euros.", "I always want prices in euros."),
        ("But the shop is closed.", "The shop is closed."),
        ("So, we moved to Ghent.", "We moved to Ghent."),
        ("So many people came.", "So many people came."),
        ("But for the rain it was fine.", "But for the rain it was fine."),
        ("Android is what I use.", "Android is what I use."),
    ],
)
def test_only_a_word_that_joins_sentences_is_dropped(text, kept):
    assert without_connective(text) == kept


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("And I always want prices in euros, with the tax included.", "Prices in euros"),
        ("My favourite breakfast is porridge.", "Breakfast"),
        ("I would rather take the bus.", "Take the bus"),
    ],
)
def test_the_topic_of_a_preference_is_what_is_wanted(text, topic):
    assert topic_of(text) == topic
