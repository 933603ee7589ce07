"""What a denial makes of a bound, of a fact and of a thing. The sentences are our own."""

import itertools

import pytest

from extractor.offline.turns.amounts import amounts_in
from tests.unit.extractor.turn_reading import exclusions, facts, read, signals_of, wishes

ABOVE = ("more than", "over", "above", "higher than")
BELOW = ("less than", "under", "below", "lower than")
FIRM = ("at least", "at most", "up to", "a minimum of", "a maximum of", "within", "no more than", "no less than")
FORBIDDING = (
    "It must not cost {} 40 euros.",
    "It mustn't cost {} 40 euros.",
    "It should not be {} 40 euros.",
    "It shouldn't cost {} 40 euros.",
    "It must never cost {} 40 euros.",
    "Don't spend {} 40 euros.",
    "Please do not go {} 40 euros.",
    "Never pay {} 40 euros.",
    "Nothing {} 40 euros.",
    "Avoid {} 40 euros.",
    "I don't want to pay {} 40 euros.",
    "{} 40 euros is unacceptable.",
    "{} 40 euros is not acceptable.",
    "{} 40 euros isn't ok.",
    "Anything {} 40 euros is out of the question.",
)
UNCLEAR = (
    "It is not {} 40 euros.",
    "I have never paid {} 40 euros.",
    "{} 40 euros is impossible.",
    "{} 40 euros isn't unacceptable.",
    "It doesn't have to be {} 40 euros.",
    "I doubt it, nothing costs {} 40 euros.",
    "Don't, whatever happens, spend {} 40 euros.",
    "Don't, under any circumstances, spend {} 40 euros.",
    "I can't find one {} 40 euros.",
    "Nobody pays {} 40 euros.",
    "I would hate to spend {} 40 euros.",
    "It must not be not {} 40 euros.",
    "It is not that it must not cost {} 40 euros.",
    "You don't get it {} 40 euros.",
    "It can hardly be {} 40 euros.",
)


def bounds(text: str) -> list:
    """Values of what a sentence wants that have a minimum or a maximum."""
    return [value for value, _ in wishes(text).values() if isinstance(value, dict) and value.keys() & {"min", "max"}]


@pytest.mark.parametrize(
    ("denial", "unit"), [*itertools.product((*FORBIDDING, *UNCLEAR), ("euros", "words", "floors"))]
)
def test_a_denied_bound_is_the_right_one_or_none(denial, unit):
    for comparative in (*ABOVE, *BELOW, *FIRM):
        text = denial.format(comparative).replace("euros", unit)
        right = {"max": 40} if comparative in ABOVE else {"min": 40} if comparative in BELOW else None
        found = bounds(text[0].upper() + text[1:])
        if right is None or denial in UNCLEAR:
            # `It is not over 40 euros` may be told as well as wished.
            assert found in ([], [right] if denial == UNCLEAR[0] else []), text
        else:
            assert found == [right], text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It must not cost more than 90 euros.", {"budget": ({"max": 90}, "must")}),
        ("Don't spend more than 40 euros.", {"budget": ({"max": 40}, "must")}),
        ("Nothing over 30 euros.", {"budget": ({"max": 30}, "must")}),
        ("Don't write less than 500 words.", {"length": ({"min": 500}, "must")}),
        ("Nothing under 4 stars.", {"star": ({"min": 4}, "must")}),
        ("More than 3 stops is unacceptable.", {"stop": ({"max": 3}, "must")}),
        ("Less than 4 stars is a no-go.", {"star": ({"min": 4}, "must")}),
        ("Anything over 30 euros is too expensive.", {"budget": ({"max": 30}, "must")}),
        ("I can't spend more than 200 dollars.", {"budget": ({"max": 200}, "must")}),
        ("The text shouldn't be longer than 2 pages.", {"length": ({"max": 2}, "must")}),
        ("Never exceed 300 words.", {"length": ({"max": 300}, "must")}),
        ("The essay must exceed 300 words.", {"length": ({"min": 300}, "must")}),
        ("The price must be higher than 90 euros.", {"budget": ({"min": 90}, "must")}),
        ("Not over 300 euros, please.", {"budget": ({"max": 300}, "must")}),
        ("Keep it to no more than 200 words.", {"length": ({"max": 200}, "must")}),
        ("Find a hotel under 90 euros that is not noisy.", {"budget": ({"max": 90}, "must")}),
        ("More than 40 euros is ok.", {"budget": ({"min": 40}, "allow")}),
    ],
)
def test_a_bound_beside_a_denial(text, found):
    assert wishes(text) == found
    assert exclusions(text) == {}
    assert facts(text) == {}


@pytest.mark.parametrize(
    "text",
    [
        "My budget isn't 500 euros.",
        "My budget is not 500 euros.",
        "Under 300 euros is impossible.",
        "It cost less than 40 euros last year.",
        "I don't earn more than 3000 euros.",
        "You can't get a flat under 900 euros here.",
        "3 stops or more is unacceptable.",
        "I would never spend more than 40 euros on a lamp.",
        "If you use more than 3 connections it fails.",
        "If the room costs more than 100 euros, it is a villa.",
    ],
)
def test_a_number_that_is_only_told_bounds_nothing(text):
    assert signals_of(read(text)) == 0


def test_what_has_a_bound_and_is_ruled_out_is_an_exception():
    assert exclusions("Avoid hotels under 3 stars.") == {"hotel": ({"exclude": ["hotels under 3 stars"]}, "avoid")}
    assert exclusions("No flights longer than 3 hours.") == {
        "flight": ({"exclude": ["flights longer than 3 hours"]}, "do_not")
    }
    assert wishes("Don't book hotels under 3 stars.") == {}


@pytest.mark.parametrize(
    "text",
    [
        "I'm not allergic to nuts.",
        "I'm not vegetarian, but my daughter is.",
        "My wife is not vegetarian.",
        "I am not vegan anymore.",
        "I am vegan no longer.",
        "My daughter is no vegetarian.",
        "We are not four people.",
        "My name is not Bob.",
        "I have never owned a car.",
        "I have finished the report.",
        "I don't live in Rome.",
        "I'm no longer a nurse.",
        "My son is not a student.",
        "The app isn't slow.",
        "I used to be a nurse.",
        "Neither of us eats meat.",
        "Neither red nor blue would be nice.",
        "I have no experience with Rust.",
        "My brother has no allergies.",
        "We have no budget limit.",
        "No need to hurry.",
        "There is no reason to worry.",
        "I drank tea instead of coffee.",
        "The flat came with no furniture.",
        "We live without a car.",
    ],
)
def test_what_is_denied_is_no_fact_and_what_is_lacking_no_ban(text):
    assert signals_of(read(text)) == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("My flight was cancelled and I have no hotel.", {"flight": ("cancelled", "high"), "hotel": (False, "high")}),
        ("I have no car.", {"car": (False, "high")}),
        ("We have no car and no bikes.", {"car": (False, "high")}),
        ("We're four people, not five.", {"people": (4, "high")}),
        ("I'm a vegetarian.", {"diet": ("vegetarian", "high")}),
        ("We're all vegetarians except my dad.", {"diet": ("vegetarians", "high")}),
    ],
)
def test_what_somebody_lacks_is_a_fact(text, found):
    assert facts(text) == found
    assert exclusions(text) == {}
    assert wishes(text) == {}


@pytest.mark.parametrize(
    ("text", "wanted", "excluded"),
    [
        ("Stop using emojis.", {}, {"format": ({"exclude": ["emojis"]}, "do_not")}),
        ("Please refrain from using emojis.", {}, {"format": ({"exclude": ["emojis"]}, "do_not")}),
        ("Could you stop using tables?", {}, {"format": ({"exclude": ["tables"]}, "do_not")}),
        (
            "Stop using tables and use lists.",
            {"format": ("lists", "prefer")},
            {"format": ({"exclude": ["tables"]}, "do_not")},
        ),
        ("Neither red nor green is ok.", {}, {"red": ({"exclude": ["red", "green"]}, "do_not")}),
        ("I like neither jazz nor rock.", {}, {"jazz": ({"exclude": ["jazz", "rock"]}, "avoid")}),
        ("Please make it blue instead of red and 2 cm wider.", {}, {"red": ({"exclude": ["red"]}, "avoid")}),
        ("Anything except sushi is fine.", {}, {"sushi": ({"exclude": ["sushi"]}, "avoid")}),
        ("Anything but sushi is fine.", {}, {"sushi": ({"exclude": ["sushi"]}, "do_not")}),
        ("Answer in German, no exceptions.", {"language": ("German", "prefer")}, {}),
        ("I'd rather take the train than fly.", {"transport": ("train", "prefer")}, {}),
        ("I want a room with no carpet.", {}, {"carpet": ({"exclude": ["carpet"]}, "do_not")}),
    ],
)
def test_what_is_ruled_out_is_no_wish_and_goes_no_further_than_it_was_said(text, wanted, excluded):
    assert wishes(text) == wanted
    assert exclusions(text) == excluded
    assert facts(text) == {}


@pytest.mark.parametrize(
    "text",
    [
        "Don't avoid tables.",
        "You need not avoid nuts.",
        "It's not that I hate tables.",
        "I'm not saying I want tables.",
        "I don't hate trains.",
        "You don't have to use tables.",
        "Don't stop using tables.",
    ],
)
def test_of_two_denials_nothing_is_certain(text):
    assert signals_of(read(text)) == 0


def test_a_bound_under_two_denials_is_left_out():
    assert amounts_in("It is not that it must not cost more than 40 euros") == ()
    [amount] = amounts_in("I say that it must not cost more than 40 euros")
    assert (amount.value, amount.turned) == ({"max": 40}, True)
