"""Answers as models really give them, over the real stream and server: read where they can be, else counted."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from runekeep import Client, TextPart
from tests.acceptance.processes import Processes, processes
from tests.acceptance.test_anthropic_dedup import WAIT_SECONDS, extractor, told, write
from tests.doubles.messages_api import MessagesApi, Request, answer

TEA = write(topic="Tea", content="Drinks green tea.")
CAKE = write(topic="Cake", content="Eats none.")
WHOLE = json.dumps(told(TEA, CAKE))
BOTH = {"Tea": "Drinks green tea.", "Cake": "Eats none."}
_users = count(1)


class Model:
    """Gives one text after the other for the commit at hand, the last of them again and again. `asked`: the prompts."""

    def __init__(self) -> None:
        self.begin("")

    def begin(self, *texts: str) -> None:
        self.texts = list(texts)
        self.asked: list[str] = []

    def __call__(self, request: Request) -> str:
        self.asked.append(request.last_text)
        return self.texts[min(len(self.asked), len(self.texts)) - 1]


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Iterator[Processes]:
    few = {"RUNEKEEP_MAX_ATTEMPTS": "2", "RUNEKEEP_BACKOFF_FIRST_SECONDS": "0.1", "RUNEKEEP_BACKOFF_MAX_SECONDS": "0.1"}
    with MessagesApi() as api, processes(tmp_path_factory.mktemp("answers")) as fleet:
        api.otherwise = answer(model)
        fleet.server(**few)
        extractor(fleet, api, "worker")
        yield fleet


@pytest.fixture
def client(running: Processes) -> Iterator[Client]:
    with Client(running.address, user=f"reader-{next(_users)}") as client:
        yield client


def ended(client: Client) -> dict[str, Any]:
    """The task of a commit of one message."""
    session = client.session()
    session.add_message("user", [TextPart("I drink green tea and eat no cake.")])
    return dict(client.wait_task(session.commit()["task_id"], timeout=WAIT_SECONDS))


def kept(client: Client) -> dict[str, str]:
    """Preferences by topic."""
    entries = client.tree("viking://user/memories")["entries"]
    found = [client.get_memory(entry["uri"])["fields"] for entry in entries if entry["memory_type"] == "preferences"]
    return {str(fields["topic"]): str(fields["content"]) for fields in found}


def changed(**keys: Any) -> str:
    return json.dumps({**json.loads(WHOLE), **keys})


@pytest.mark.parametrize(
    ("text", "memories", "dropped"),
    [
        pytest.param(f"Sure!\n```json\n{WHOLE}\n```\nDone.", BOTH, 0, id="fences"),
        pytest.param(changed(write_operations=["tea", TEA, None, 7, CAKE]), BOTH, 3, id="bad items of a list"),
        pytest.param(
            changed(write_operations=[{**TEA, "ranges": 1}, {**CAKE, "ranges": [[1, 1]]}]),
            BOTH,
            0,
            id="ranges in short",
        ),
        pytest.param(changed(edit_operations=None, delete_operations="none"), BOTH, 1, id="wrong types of lists"),
    ],
)
def test_an_answer_with_faults_gives_what_is_right_in_it(
    client: Client, model: Model, text: str, memories: dict[str, str], dropped: int
) -> None:
    model.begin(text)
    task = ended(client)
    assert task["status"] == "completed", task
    assert kept(client) == memories
    assert task["result"]["dropped_items"] == dropped
    assert task["result"]["outcome"] == ("partly_rejected" if dropped else "applied")
    assert len(model.asked) == 1


def test_an_answer_that_breaks_off_keeps_what_was_whole(client: Client, model: Model) -> None:
    cut = WHOLE.index('"content", "value": "Eats') + 30
    model.begin(WHOLE[:cut])
    task = ended(client)
    # Without its summary the answer is not whole: the commit is tried again, and told so, before it is given up.
    assert task["status"] == "failed" and task["result"]["outcome"] == "unparseable"
    assert not kept(client)
    assert len(model.asked) == 2 and "An earlier answer was not usable" in model.asked[1]


@pytest.mark.parametrize("text", ["I cannot do that.", '{"write_operations": 7}'])
def test_what_cannot_be_used_fails_with_its_reason_and_never_passes_for_nothing(
    client: Client, model: Model, text: str
) -> None:
    model.begin(text)
    task = ended(client)
    assert (task["status"], task["result"]["outcome"]) == ("failed", "unparseable")
    assert task["error"]["message"].startswith("invalid_output: the model's answer cannot be used")
    assert not kept(client)
    assert len(model.asked) == 2 and "An earlier answer was not usable" in model.asked[1]


def test_the_next_attempt_may_answer_better(client: Client, model: Model) -> None:
    model.begin("Let me think about it.", WHOLE)
    task = ended(client)
    assert (task["status"], task["result"]["outcome"], task["attempt"]) == ("completed", "applied", 2)
    assert kept(client) == BOTH
