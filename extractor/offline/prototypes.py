"""Sentences that stand for each kind of statement. Ours, about nobody."""

from typing import Final

PROFILE: Final = "profile"
PREFERENCES: Final = "preferences"
ENTITIES: Final = "entities"
EVENTS: Final = "events"
CASES: Final = "cases"
PATTERNS: Final = "patterns"
NONE: Final = "none"

PROTOTYPES: Final[dict[str, tuple[str, ...]]] = {
    PROFILE: (
        "I am a nurse and work night shifts at a hospital.",
        "I live in a small flat in Porto with my husband.",
        "I have two daughters and a son.",
        "I grew up in Sweden and moved here as a child.",
        "I am studying biology and want to become a teacher.",
        "My native language is Portuguese and I also speak English.",
        "I am allergic to peanuts and have asthma.",
        "I run every morning before work.",
        "My dream is to open my own bakery one day.",
        "I have ten years of experience with databases.",
        "I am single and forty years old.",
        "My faith matters a lot to me.",
    ),
    PREFERENCES: (
        "I prefer tea to coffee.",
        "I love hiking in the mountains.",
        "I can't stand loud music.",
        "My favorite food is sushi.",
        "I like short answers without bullet points.",
        "Please always write the tests first.",
        "I usually take the train to work because I hate driving.",
        "I enjoy reading fantasy novels.",
        "I don't like type hints in small scripts.",
        "Painting helps me relax and express my feelings.",
        "I would rather work from home.",
    ),
    ENTITIES: (
        "My sister Clara lives in Oslo and works as a vet.",
        "My dog Max is three years old and loves the beach.",
        "Our project Falcon is written in Rust.",
        "The billing service runs on PostgreSQL.",
        "Northwind is a company that sells bicycles.",
        "My boss Peter is very strict about deadlines.",
        "The book is about a family in the war.",
        "The community center offers classes for kids.",
        "My friend Tom is a great cook.",
        "Our staging cluster has six machines in Frankfurt.",
    ),
    EVENTS: (
        "I went to a support group yesterday.",
        "We adopted a puppy last week.",
        "I signed up for a pottery class.",
        "I got promoted and start the new job next month.",
        "We decided to move the service to Go.",
        "Last summer we camped in the forest with the kids.",
        "I ran a charity race on Saturday.",
        "I am going to a conference in July.",
        "My grandmother died three years ago.",
        "We deployed the new version this morning.",
        "I finished my first painting and gave it to a friend.",
        "I gave a talk at a school and met many people.",
    ),
    CASES: (
        "The import hangs on large files.",
        "I get a permission error when I start the server.",
        "The tests fail with a timeout on the build machine.",
        "The problem was a stale cache, clearing it fixed it.",
        "It works now after I upgraded the driver.",
        "The app crashes when the list is empty.",
        "The fix was to read the file in chunks.",
        "My printer does not connect to the network.",
        "The root cause was a missing index.",
        "We solved it by raising the memory limit.",
    ),
    NONE: (
        "Hey, good to see you! How have you been?",
        "Thanks so much, that means a lot to me.",
        "Wow, that is amazing!",
        "What do you think about it?",
        "You are doing great, keep it up!",
        "That sounds really fun.",
        "I totally agree with you.",
        "Haha, that is so funny.",
        "Talk to you soon, take care!",
        "I am so happy for you and proud of you.",
        "Let me know if you need anything else.",
        "It is important to believe in yourself.",
        "Sure, here is what I found for you.",
        "That is a beautiful photo.",
        "I hope everything goes well.",
        "Can you tell me more about that?",
    ),
}
