"""What sounds like a wish and is none: questions, rules of the world, complaints, logs; and other languages."""

import pytest

from tests.unit.extractor.turn_reading import exclusions, facts, read, signals_of, wishes


@pytest.mark.parametrize(
    "text",
    [
        "Is it true that you must always cite sources?",
        "Do I need at least 3 backups?",
        "Do you think I should avoid gluten?",
        "Should I avoid gluten?",
        "Does it need to be at least 3 pages?",
        "Why must the report be in German?",
        "Why do you always answer in French?",
        "In Germany you must drive on the right.",
        "In Japan you must not eat while you walk.",
        "Students must wear uniforms at my school.",
        "At work we must wear a badge.",
        "You must wear uniforms at my school.",
        "People must not smoke here.",
        "By law you need at least 2 exits.",
        "Doctors say you should avoid salt.",
        "Passwords must have at least 12 characters.",
        "ERROR You must not use more than 5 connections",
        "2026-01-02 10:00:00 WARN must not use more than 5 connections",
        "[worker-1] FATAL You should avoid tables.",
        "You always use tables.",
        "I see you give me bullet points again.",
        "You've used emojis again.",
        "You answered in Spanish.",
        "I stopped eating meat.",
    ],
)
def test_what_is_asked_told_or_complained_of_is_no_wish(text):
    assert signals_of(read(text)) == 0


def test_what_a_thing_of_the_world_must_is_none_of_the_agents():
    text = "The meeting is at 3pm, and it must end by 4:30pm."
    assert wishes(text) == exclusions(text) == {}
    assert facts(text) == {"meeting": ("at 3pm", "high")}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The report must be in German.", {"language": ("German", "must")}),
        ("No, I prefer trains.", {"transport": ("trains", "prefer")}),
        ("The rooms must have a window.", {"window": ("window", "must")}),
        ("You must cite sources.", {"source": ({"rule": "cite sources"}, "must")}),
        ("Is there a hotel under 90 euros?", {"budget": ({"max": 90}, "must")}),
        ("You keep giving me tables, please use prose.", {"format": ("prose", "prefer")}),
        ("Make sure you use tables.", {"format": ("tables", "must")}),
        ("You must not use more than 5 connections.", {"connection": ({"max": 5}, "must")}),
    ],
)
def test_an_order_that_looks_like_them_is_one(text, found):
    assert wishes(text) == found


@pytest.mark.parametrize(
    "text",
    ["The budget is 500. No wait, 700.", "The budget is 500, no wait, 700.", "My budget is 500. Sorry, 700."],
)
def test_a_bare_number_takes_the_place_of_the_one_before(text):
    assert wishes(text) == {"budget": ({"max": 700}, "must")}
    assert facts(text) == {}


def test_a_budget_is_a_bound_and_no_fact_of_its_own():
    assert wishes("We have a budget of 3000 dollars.") == {"budget": ({"max": 3000}, "must")}
    assert facts("We have a budget of 3000 dollars.") == {}


@pytest.mark.parametrize(
    "text",
    [
        "Ich mag nicht keine Tabellen.",
        "Je n'aime pas le café sans sucre.",
        "Ich mag keinen Fisch, aber Fleisch mag ich.",
        'Mein Chef sagt: "Ich mag keine Tabellen."',
        "Mein Chef sagt, ich mag keine Tabellen.",
        "Mi jefe dice que prefiero el té.",
        "«Je préfère le thé.»",
    ],
)
def test_in_other_languages_what_is_denied_twice_in_part_or_by_others_is_left_out(text):
    assert signals_of(read(text)) == 0


@pytest.mark.parametrize(
    ("text", "kind", "key", "severity"),
    [
        ("Nie lubię kawy.", exclusions, "preference", "avoid"),
        ("Lubię kawę.", wishes, "preference", "prefer"),
        ("Ich mag das nicht.", exclusions, "preference", "avoid"),
        ("Ich mag Tee aus Assam.", wishes, "assam", "prefer"),
        ("Ich möchte immer kurze Antworten.", wishes, "antworten", "must"),
        ("Je n'aime pas le thé.", exclusions, "preference", "avoid"),
        ("Odio el café.", exclusions, "preference", "avoid"),
        ("Ich wohne hier.", facts, "profile", "medium"),
    ],
)
def test_a_key_in_another_language_is_a_noun_or_a_word_for_all(text, kind, key, severity):
    assert kind(text) == {key: (text if kind is facts else {"rule": text}, severity)}


@pytest.mark.parametrize("text", ["I live in Ghent. Just kidding.", "I prefer trains. I'm joking."])
def test_what_is_taken_back_at_once_was_not_meant(text):
    assert signals_of(read(text)) == 0
    assert signals_of(read(text.split(".")[0] + ".")) == 1


def test_behind_material_handed_over_nothing_is_meant_and_behind_a_mere_order_it_is():
    assert signals_of(read("Proofread this: My dog barks. I prefer trains. Use German.")) == 0
    assert signals_of(read("Can you translate this: My dog barks. Don't use tables.")) == 0
    # Nothing is handed over here.
    assert wishes("Translate my letter into French. Use formal words.") != {}
    assert exclusions("Translate my letter into French. Don't use tables.") == {
        "format": ({"exclude": ["tables"]}, "do_not")
    }


@pytest.mark.parametrize(
    "text",
    [
        "My boss says that as we discussed, the museum comes first.",
        "Suppose that, as we discussed, the museum comes first.",
    ],
)
def test_a_reference_back_that_is_not_meant_is_no_search(text):
    assert list(read(text).ctx_retrieval_queries) == []
    assert len(read("As we discussed, the museum comes first.").ctx_retrieval_queries) == 1
