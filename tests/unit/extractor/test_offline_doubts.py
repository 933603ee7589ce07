import pytest

from extractor.offline.doubts import doubt
from extractor.offline.made_up import opens_frame
from extractor.offline.speech import own_words, to_remember


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("Should I move to Lisbon or stay in Berlin", "question"),
        ("I wonder what my sister would like.", "question"),
        ("If I lived in Norway, I would ski every weekend.", "supposed"),
        ("I wish I had a garden.", "supposed"),
        ("Maybe I'll take up sailing.", "hedged"),
        ("I might be allergic to something in there.", "hedged"),
        ("I never said that I like jazz.", "undone"),
        ("We haven't bought anything yet.", "undone"),
        ("I only eat on days that end in y, haha.", "joke"),
        ("Oh great, another Monday meeting, just what I love.", "sarcasm"),
        ('She said "I live in Madrid and I love it".', "quoted"),
        ("According to the article, the company moved to Austin in 2020.", "quoted"),
        ("My character is a half-elf ranger who is allergic to iron.", "fiction"),
        ("Pretend you are my doctor and I have a cough.", "role play"),
        ("Use this as test data: John Smith, born 1 May 1980.", "sample"),
        ("Rewrite the second paragraph in a friendlier tone.", "order"),
        ("I prefer the second version you made.", "just shown"),
        ("Here's a pic of my dog.", "held out"),
        ("I'm so tired today.", "mood"),
        ("I was supposed to meet Anna yesterday.", "undone"),
        ("We never adopted the puppy last week.", "undone"),
        ("My brother Tom never came to the wedding in May.", "undone"),
        ("I bought nothing yesterday.", "undone"),
        ("Nobody came to my party on Friday.", "undone"),
        ("I have never been to Japan.", "undone"),
        ("I never smoked yesterday.", "undone"),
        ("My boss thinks I am allergic to work.", "supposed"),
        ("My parents believe that I live in Oslo.", "supposed"),
        ("I thought my sister lived in Rome.", "supposed"),
        ("My daughter pretends she is a doctor.", "supposed"),
        ("My son pretended to be a pilot.", "supposed"),
        ("I am 30 years old in this role play.", "role play"),
        ("In our role-play I am a knight.", "role play"),
        ("I am sitting on the train at the moment.", "moment"),
        ("A woman on the bus had a parrot on her shoulder.", "stranger"),
        ("You always find the right words.", "the other"),
        ("Water boils at 100 degrees at sea level.", "general"),
        ("SELECT name FROM users WHERE city = 'Oslo';", "code"),
        ("Thanks a million, that was exactly what I needed.", "small talk"),
    ],
)
def test_what_is_no_fact_has_a_reason(text, family):
    assert doubt(own_words(text), assistant=False) == family


@pytest.mark.parametrize(
    "text",
    [
        "I'm left-handed.",
        "I don't drink alcohol.",
        "I haven't smoked for three years.",
        "From now on, call me Bea instead of Beatrice.",
        "When you write code for me, leave out the comments.",
        "Keep replies under five sentences unless I ask for more.",
        "I would appreciate it if you always used metric units.",
        "I'm so happy, we finally bought the house!",
        "You'll have to speak up, I'm deaf in one ear.",
        "Right now I live with my parents.",
        "Our project is called Blue Bird.",
        "I failed the bar exam.",
        "I have never smoked.",
        "I never learned to drive.",
        "My doctor says I am allergic to penicillin.",
        "My sister believes in ghosts and lives in Rome.",
    ],
)
def test_what_only_resembles_one_is_a_fact(text):
    assert doubt(own_words(text), assistant=False) == ""


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("I can book that for you if you like.", "offer"),
        ("Would you like me to book the flight for 3 June?", "offer"),
        ("Paris has more than two million inhabitants.", "assistant"),
        ("I've booked your table for 2 June.", ""),
        ("The leak came from open sessions; I closed them and it has been stable.", ""),
    ],
)
def test_of_an_agent_only_deeds_count(text, family):
    assert doubt(text, assistant=True) == family


def test_what_is_asked_to_be_remembered_is_told_from_a_task():
    assert to_remember("Please remember that I'm allergic to nuts.") == "I'm allergic to nuts."
    assert to_remember("Remember to buy nuts.") == ""


def test_short_quotations_are_names_and_longer_ones_are_speech():
    assert own_words('Our project "Blue Bird" is in Rust.') == 'Our project "Blue Bird" is in Rust.'
    assert "Madrid" not in own_words("She said “I live in Madrid now”.")


def test_a_task_or_a_story_frames_what_follows():
    assert opens_frame("Translate this into German.")
    assert opens_frame("In my novel, the heroine lives in a lighthouse.")
    assert not opens_frame("I like citrus, for example lemons.")
