"""What reads like a fact."""

import pytest

from runekeep_storage.indexing import facts


@pytest.mark.parametrize(
    "said",
    [
        "Bought the kettle last week",
        "She moved to Lisbon, they say",
        "旅行は7月です",
        "My sister has two cats",
    ],
)
def test_signs_of_a_fact(said: str) -> None:
    assert facts.fact_score(said) == 1


def test_signs_add_up() -> None:
    assert facts.fact_score("I went to Lisbon last week") == 3


@pytest.mark.parametrize("said", ["Really nice!", "", "Sounds good, take care"])
def test_nothing_said(said: str) -> None:
    assert facts.fact_score(said) == 0


@pytest.mark.parametrize(
    "said", ["Did that go well?", "それはどこ？", "Did that go well?'", "Did that go well? [photo: a cat]"]
)
def test_who_asks_does_not_answer(said: str) -> None:
    assert facts.fact_score(said) == -1


@pytest.mark.parametrize(
    ("said", "of"),
    [
        ("Nice one [photo: a sign in Lisbon since 1920]", "Nice one"),
        ("Nice one [photo: a sign in Lisb", "Nice one"),
        ("Done [tool search: I found Lisbon yesterday]", "Done"),
        ("Hey Robin, nice one", "Hey, nice one"),
        ("Sounds good, Robin!", "Sounds good!"),
        ("Thank you Robin. Nice one", "Thank you. Nice one"),
    ],
)
def test_captions_tools_and_who_is_spoken_to_say_nothing(said: str, of: str) -> None:
    assert facts.fact_score(said) == facts.fact_score(of) == 0


def test_a_name_that_is_spoken_of_counts() -> None:
    assert facts.fact_score("Hey Robin, nice one from Kim") == 1
    assert facts.fact_score("They went with Robin, and came back") == 1
