"""Pairs of memories of one type, labelled by hand before anything was measured on them.

`NEAR`: the two say the same, or one changes or contradicts the other, so somebody has to decide. `APART`: they have
nothing to do with each other beyond their type. Written for this test; the wordings are those of memories that models
write, short and long.
"""

from typing import Final

Fields = dict[str, str]
Pair = tuple[str, Fields, Fields]


def _preference(topic: str, content: str) -> Fields:
    return {"topic": topic, "content": content}


def _entity(name: str, content: str) -> Fields:
    return {"entity_name": name, "content": content}


def _event(name: str, when: str, content: str) -> Fields:
    return {"event_name": name, "event_time": when, "content": content}


def _case(name: str, problem: str, solution: str) -> Fields:
    return {"case_name": name, "problem": problem, "solution": solution}


def _pattern(name: str, content: str) -> Fields:
    return {"pattern_name": name, "content": content}


def _experience(name: str, content: str) -> Fields:
    return {"experience_name": name, "content": content}


NEAR: Final[tuple[Pair, ...]] = (
    ("preferences", _preference("Tea", "Drinks only green tea."),
     _preference("Hot drinks", "Prefers green tea to every other hot drink.")),
    ("preferences", _preference("Coffee", "Drinks coffee black."),
     _preference("Coffee order", "Takes coffee with oat milk now, no longer black.")),
    ("preferences", _preference("Code style", "Wants type hints on every function in Python."),
     _preference("Python typing", "Asks that all Python functions carry type annotations.")),
    ("preferences", _preference("Meetings", "No meetings before ten in the morning."),
     _preference("Meeting times", "Wants meetings to start at 10:00 at the earliest.")),
    ("preferences", _preference("Answers", "Likes short answers without introductions."),
     _preference("Answer length", "Wants replies kept brief, straight to the point.")),
    ("preferences", _preference("Editor", "Uses Neovim with a dark theme."),
     _preference("Text editor", "Has switched from Neovim to Zed.")),
    ("preferences", _preference("Diet", "Is vegetarian."),
     _preference("Food", "Eats no meat; vegetarian for ten years.")),
    ("preferences", _preference("Travel", "Prefers trains to planes within Europe."),
     _preference("European trips", "Takes the train rather than flying for journeys in Europe.")),
    ("preferences", _preference("Commit messages", "Wants commit messages in the imperative mood."),
     _preference("Git commits", "Commit subjects should be written as commands, such as 'Add tests'.")),
    ("preferences", _preference("音楽", "ジャズが好きで、よくライブに行く。"),
     _preference("好きな音楽", "ジャズのライブによく出かける。")),
    ("entities", _entity("Anna", "Anna is the user's sister. She lives in Porto and is a nurse."),
     _entity("Anna (sister)", "The user's sister Anna works as a nurse in Porto.")),
    ("entities", _entity("Atlas", "Atlas is the billing service, written in Go, owned by the payments team."),
     _entity("Atlas service", "The billing service Atlas was moved from Go to Rust by the payments team.")),
    ("entities", _entity("Rex", "Rex is the family's dog, a four-year-old beagle."),
     _entity("The dog", "The user's family has a beagle named Rex.")),
    ("entities", _entity("Dr. Moreau", "Dr. Moreau is the user's dentist in Lyon."),
     _entity("Moreau", "The user's dentist, Dr. Moreau, has moved her practice to Grenoble.")),
    ("entities", _entity("Project Heron", "Heron is a mobile app for bird watchers, due in May 2026."),
     _entity("Heron", "The bird watching app Heron has been delayed to August 2026.")),
    ("entities", _entity("Tomas Weber", "Tomas Weber leads the platform team and approves deployments."),
     _entity("Tomas", "Tomas is head of the platform team; deployments need his approval.")),
    ("events", _event("Moved to Lisbon", "2026-02-27", "The user moved from Porto to Lisbon for a new job."),
     _event("Relocation to Lisbon", "2026-02", "In February 2026 the user left Porto and moved to Lisbon for work.")),
    ("events", _event("Adopted a cat", "2026-03-01", "Anna adopted a grey cat from the shelter and named it Mimi."),
     _event("Anna adopted Mimi", "2026-03-01", "Anna took home a grey shelter cat called Mimi.")),
    ("events", _event("Half marathon", "2026-04-12", "The user ran the Lisbon half marathon in 1:52."),
     _event("Ran half marathon in Lisbon", "2026-04-12", "Finished the half marathon in Lisbon in 1 h 52 min.")),
    ("events", _event("Chose PostgreSQL", "2026-01-15", "The team decided to use PostgreSQL instead of MongoDB."),
     _event("Database decision", "2026-01-15", "It was decided to build on PostgreSQL rather than MongoDB.")),
    ("events", _event("Broke his arm", "2025-11-03", "Leo broke his left arm while skiing in Zermatt."),
     _event("Skiing accident of Leo", "2025-11", "Leo fell while skiing in Zermatt and broke his left arm.")),
    ("cases", _case("Out of disk space → Rotate logs", "The server stopped because its disk was full of logs.",
                    "Set up log rotation with a limit of 1 GB."),
     _case("Disk full on server → logrotate", "Logs had filled the disk and the service went down.",
           "Configured logrotate to keep at most one gigabyte.")),
    ("cases", _case("Flaky login test → Wait for the redirect", "The login test failed now and then in CI.",
                    "Wait for the redirect to end before checking the page."),
     _case("CI login test fails at times → await navigation", "In CI the test of the login is unstable.",
           "The test now waits for the navigation after login.")),
    ("cases", _case("Import error of numpy → Rebuild venv", "numpy failed to import after the Python upgrade.",
                    "Deleted the virtual environment and made it again."),
     _case("numpy cannot be imported → new virtual environment", "After upgrading Python, import numpy broke.",
           "Recreating the venv solved it.")),
    ("patterns", _pattern("Release process: Tag, build, publish",
                          "1. Update the changelog. 2. Tag. 3. Build wheels. 4. Publish to the index."),
     _pattern("Publishing a package: From tag to index",
              "Write the changelog, tag the commit, build the wheels and upload them to the package index.")),
    ("patterns", _pattern("Code review: Read tests first", "Read the tests of a change before its code."),
     _pattern("Reviewing: Begin with the tests", "When reviewing a change, look at its tests first, then the code.")),
    ("patterns", _pattern("Debugging: Halve the input", "Cut the failing input in half until it is minimal."),
     _pattern("Finding bugs: Bisect", "Reduce a failing input by halves until the smallest one that fails is left.")),
    ("experiences", _experience("Check the schema before a migration",
                                "Situation: a migration of a production table. Approach: dump the schema, compare "
                                "it, run the migration on a copy. Reflect: differences showed before they hurt."),
     _experience("Try migrations on a copy",
                 "Situation: a production database must be migrated. Approach: compare schemas and try the migration "
                 "on a copy first. Reflect: problems came up early.")),
    ("experiences", _experience("Ask for the time zone",
                                "Situation: a user wants an appointment. Approach: ask for the time zone before "
                                "booking. Reflect: no appointment had to be moved."),
     _experience("Time zones in bookings",
                 "Situation: booking a meeting for a user. Approach: first confirm the user's time zone. Reflect: "
                 "avoids rescheduling.")),
)  # fmt: skip

APART: Final[tuple[Pair, ...]] = (
    ("preferences", _preference("Tea", "Drinks only green tea."), _preference("Editor", "Uses Neovim in a terminal.")),
    ("preferences", _preference("Tea", "Drinks only green tea."),
     _preference("Diet", "Is vegetarian and eats no mushrooms.")),
    ("preferences", _preference("Coffee", "Drinks coffee black."), _preference("Wine", "Likes dry white wine.")),
    ("preferences", _preference("Meetings", "No meetings before ten in the morning."),
     _preference("Sport", "Goes swimming on Tuesday mornings.")),
    ("preferences", _preference("Code style", "Wants type hints on every function in Python."),
     _preference("Tests", "Prefers pytest to unittest.")),
    ("preferences", _preference("Commit messages", "Wants commit messages in the imperative mood."),
     _preference("Answers", "Likes short answers without introductions.")),
    ("preferences", _preference("Travel", "Prefers trains to planes within Europe."),
     _preference("Hotels", "Books small hotels near the station.")),
    ("preferences", _preference("Music", "Listens to jazz while working."),
     _preference("Films", "Likes old Italian films.")),
    ("preferences", _preference("Holidays", "Spends summers in the mountains."),
     _preference("Phone", "Uses an Android phone and does not want to change.")),
    ("preferences", _preference("Language", "Wants answers in German."),
     _preference("Units", "Wants metric units in all answers.")),
    ("preferences", _preference("音楽", "ジャズが好きで、よくライブに行く。"),
     _preference("食べ物", "辛い料理が苦手。")),
    ("entities", _entity("Anna", "Anna is the user's sister. She lives in Porto and is a nurse."),
     _entity("Tomas Weber", "Tomas Weber leads the platform team and approves deployments.")),
    ("entities", _entity("Anna", "Anna is the user's sister. She lives in Porto and is a nurse."),
     _entity("Leo", "Leo is the user's son. He is nine and plays the violin.")),
    ("entities", _entity("Atlas", "Atlas is the billing service, written in Go, owned by the payments team."),
     _entity("Heron", "Heron is a mobile app for bird watchers, due in May 2026.")),
    ("entities", _entity("Atlas", "Atlas is the billing service, written in Go, owned by the payments team."),
     _entity("Iris", "Iris is the search service, written in Python, owned by the data team.")),
    ("entities", _entity("Rex", "Rex is the family's dog, a four-year-old beagle."),
     _entity("Dr. Moreau", "Dr. Moreau is the user's dentist in Lyon.")),
    ("entities", _entity("Lisbon", "The user lives in Lisbon, in Alfama."),
     _entity("Acme", "Acme is the user's employer, a maker of sensors.")),
    ("entities", _entity("Mimi", "Mimi is Anna's grey cat from the shelter."),
     _entity("Rex", "Rex is the family's dog, a four-year-old beagle.")),
    ("events", _event("Moved to Lisbon", "2026-02-27", "The user moved from Porto to Lisbon for a new job."),
     _event("Half marathon", "2026-04-12", "The user ran a half marathon in 1:52.")),
    ("events", _event("Adopted a cat", "2026-03-01", "Anna adopted a grey cat from the shelter."),
     _event("Chose PostgreSQL", "2026-01-15", "The team decided to use PostgreSQL instead of MongoDB.")),
    ("events", _event("Broke his arm", "2025-11-03", "Leo broke his left arm while skiing in Zermatt."),
     _event("Concert", "2025-12-20", "Leo played the violin at his school's winter concert.")),
    ("events", _event("Promotion", "2026-03-10", "The user was made team lead at Acme."),
     _event("Dentist", "2026-03-11", "The user had a tooth pulled by Dr. Moreau.")),
    ("events", _event("Bought a bicycle", "2026-05-02", "Bought a used touring bicycle for 400 euros."),
     _event("Sold the car", "2026-05-20", "Sold the old car to a neighbour.")),
    ("events", _event("Release 2.0", "2026-02-01", "Version 2.0 of Heron was released to the store."),
     _event("Hired Mia", "2026-02-03", "Mia joined the platform team as an engineer.")),
    ("cases", _case("Out of disk space → Rotate logs", "The server stopped because its disk was full of logs.",
                    "Set up log rotation with a limit of 1 GB."),
     _case("Flaky login test → Wait for the redirect", "The login test failed now and then in CI.",
           "Wait for the redirect to end before checking the page.")),
    ("cases", _case("Import error of numpy → Rebuild venv", "numpy failed to import after the Python upgrade.",
                    "Deleted the virtual environment and made it again."),
     _case("Slow query → Add index", "The report of orders took a minute.", "An index on the order date.")),
    ("cases", _case("Wrong prices → Round at the end", "Totals were off by a cent.", "Rounding only the sum."),
     _case("Mails not sent → Renew password", "The mail job failed to log in.", "Set the renewed password.")),
    ("patterns", _pattern("Release process: Tag, build, publish",
                          "1. Update the changelog. 2. Tag. 3. Build wheels. 4. Publish to the index."),
     _pattern("Code review: Read tests first", "Read the tests of a change before its code.")),
    ("patterns", _pattern("Debugging: Halve the input", "Cut the failing input in half until it is minimal."),
     _pattern("Weekly report: From tickets to text", "Collect closed tickets, group them by goal, write three lines.")),
    ("patterns", _pattern("Onboarding: First week", "Give accounts on day one, a small ticket on day two."),
     _pattern("Incident: Write it up", "After an incident write a timeline, causes and actions.")),
    ("experiences", _experience("Check the schema before a migration",
                                "Situation: a migration of a production table. Approach: dump the schema, compare "
                                "it, run the migration on a copy. Reflect: differences showed before they hurt."),
     _experience("Ask for the time zone",
                 "Situation: a user wants an appointment. Approach: ask for the time zone before booking. Reflect: no "
                 "appointment had to be moved.")),
    ("experiences", _experience("Quote sources in summaries",
                                "Situation: a summary of papers. Approach: name the source after each claim. Reflect: "
                                "questions could be answered at once."),
     _experience("Limit the search first",
                 "Situation: a search of a large code base. Approach: narrow by directory, then by name. Reflect: "
                 "fewer calls were needed.")),
)  # fmt: skip
