"""Reactions: their stored form, and which are refused."""

from dataclasses import replace

import pytest
from hypothesis import given

from runekeep_schemas.turns.feedback import MACHINE, PREFIX, USER, Reaction, artifact_name, refusal, settled
from tests.unit.schemas.turns.strategies import reactions

OF_USER = Reaction("f1", "t4", "ok", "", USER, 1.0, "t4", 1_769_332_530_000_000)
OF_MACHINE = Reaction("f2", "t4", "not_ok", "The price is missing.", MACHINE, 0.7, "t5", 1_769_332_530_000_000)


@given(reactions)
def test_the_stored_form_gives_back_the_same(reaction: Reaction) -> None:
    text = reaction.to_text()
    assert text.startswith(PREFIX + "{")
    assert "\n" not in text
    assert Reaction.from_text(text) == reaction


def test_the_stored_form() -> None:
    assert OF_MACHINE.to_text() == (
        '[turn.log.reaction]{"feedback_id":"f2","turn_id":"t4","reaction":"not_ok","text":"The price is missing.",'
        '"origin":"machine","confidence":0.7,"from_turn_id":"t5","ts":"2026-01-25T09:15:30Z"}'
    )


def test_another_text_is_no_stored_reaction() -> None:
    with pytest.raises(ValueError, match="does not begin with"):
        Reaction.from_text(OF_USER.to_text().removeprefix(PREFIX))


def test_a_user_has_one_reaction_to_a_turn_and_machines_have_many() -> None:
    assert artifact_name(OF_USER) == artifact_name(replace(OF_USER, feedback_id="f9", reaction="not_ok")) == "user:t4"
    assert artifact_name(OF_MACHINE) == "f2"


@given(reactions)
def test_what_a_user_says_is_certain_and_of_its_own_turn(reaction: Reaction) -> None:
    kept = settled(reaction)
    if reaction.origin == USER:
        assert (kept.confidence, kept.from_turn_id) == (1.0, reaction.turn_id)
        assert replace(kept, confidence=reaction.confidence, from_turn_id=reaction.from_turn_id) == reaction
    else:
        assert kept == reaction


@pytest.mark.parametrize(
    "reaction",
    [
        OF_USER,
        replace(OF_USER, confidence=0.0),
        replace(OF_USER, reaction="none", text="hm"),
        OF_MACHINE,
        replace(OF_MACHINE, turn_id=""),
        replace(OF_MACHINE, reaction="none"),
    ],
)
def test_accepted(reaction: Reaction) -> None:
    assert refusal(reaction) is None


@pytest.mark.parametrize(
    ("reaction", "field"),
    [
        (replace(OF_MACHINE, confidence=0.6999), "confidence"),
        (replace(OF_MACHINE, confidence=float("nan")), "confidence"),
        (replace(OF_MACHINE, text=" \n"), "text"),
        (replace(OF_USER, turn_id=""), "turn_id"),
        (replace(OF_USER, reaction="none", text=" "), "reaction"),
    ],
)
def test_refused(reaction: Reaction, field: str) -> None:
    refused = refusal(reaction)
    assert refused is not None
    assert refused[0] == field
