"""The doctor warns about users who write mostly in a language that the embedder does not know."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runekeep import Client, TextPart
from runekeep_server.doctor.languages import languages
from runekeep_server.settings import load_settings
from tests.support.postgres import PostgresServer
from tests.support.server_process import ROOT, ServerProcess

GERMAN = (
    "Der Brennofen aus Delft kommt am vierzehnten Mai, er braucht eine eigene Steckdose.",
    "Unsere Katze Minka frisst nur Fisch und schläft am liebsten auf dem Drucker.",
    "Kannst du mir bitte aufschreiben, was wir am Dienstag mit der Schule besprochen haben?",
    "Die Miete für das Atelier beträgt 640 Euro im Monat, die Heizung ist dabei.",
    "Am Donnerstag fahre ich mit dem Zug nach Hamburg und bin erst abends wieder da.",
    "Ich trinke morgens lieber grünen Tee als Kaffee, das weißt du ja inzwischen.",
)
CHINESE = (
    "窑炉五月十四号从代尔夫特运到，需要一个单独的插座。",
    "我们家的猫只吃鱼，最喜欢睡在打印机上面。",
    "请帮我记下星期二和学校谈好的事情。",
    "工作室的房租每个月六百四十欧元，包括暖气。",
    "星期四我坐火车去汉堡，晚上才能回来。",
    "早上我喜欢喝绿茶，不喜欢喝咖啡。",
)
ENGLISH = (
    "The kiln from Delft arrives on 14 May, and it needs a socket of its own.",
    "Our cat Minka eats only fish and sleeps on the printer most of the day.",
    "Can you write down what we agreed with the school on Tuesday, please?",
    "The rent of the studio is 640 euros a month, with the heating included.",
    "On Thursday I take the train to Hamburg and come back late in the evening.",
    "In the morning I like green tea better than coffee, as you know by now.",
)
SHORT = (
    "Ja, genau.",
    "lol",
    "brb",
    "np, ty!",
    "好的",
    "谢谢",
    "明天见",
    "没问题",
    "再见",
    "可以",
    "不客气",
    "我知道了",
)
CODE = tuple(
    f"```python\nfür_{number} = hole_werte(eingabe_{number})\nreturn für_{number}\n``` https://beispiel.de/{number}"
    for number in range(8)
)
SAID = {
    "anna": GERMAN,
    "min": CHINESE,
    "robin": ENGLISH,
    "kurt": SHORT,
    "cody": CODE,
    # Half of it is English.
    "mixed": (*GERMAN, *ENGLISH),
    "mostly": (*GERMAN, *ENGLISH[:3]),
    # Too few texts to tell.
    "new": GERMAN[:4],
}


def talk(address: str) -> None:
    for user, texts in SAID.items():
        with Client(address, account="acme", user=user, timeout=60) as client:
            session = client.session("talk")
            for text in texts:
                session.add_message("user", [TextPart(text)])


def run_doctor(data_dir: Path) -> list[dict[str, str]]:
    """What `runekeep doctor` finds about languages, with all its output free of what users said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNEKEEP_")}
    ran = subprocess.run(
        [sys.executable, "-m", "runekeep", "doctor", "--data-dir", str(data_dir), "--json"],
        cwd=ROOT,
        env={**environment, "RUNEKEEP_EMBEDDER": "minilm", "RUNEKEEP_ADDRESS": "127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    said = ran.stdout + ran.stderr
    assert not [text for texts in SAID.values() for text in texts if text in said or text[:20] in said]
    return [one for one in json.loads(ran.stdout)["checks"] if one["check"] == "text.language"]


async def findings(data_dir: Path, embedder: str, **given: Any) -> list[dict[str, str]]:
    settings = load_settings(None, {"data_dir": data_dir, "embedder": embedder, **given})
    return [check.to_json() async for check in languages(settings)]


def users(found: list[dict[str, str]]) -> dict[str, str]:
    """The text of each warning, by user."""
    warnings = [one["found"] for one in found if one["state"] == "warning"]
    return {text.split("user ")[1].split(":")[0]: text for text in warnings}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("languages") / "data").start()
    try:
        talk(server.address)
        yield server
    finally:
        server.stop()


def test_who_writes_in_another_language_is_named_while_the_server_runs(server: ServerProcess) -> None:
    found = run_doctor(server.data_dir)
    named = users(found)
    assert set(named) == {"anna", "min", "mostly"}
    assert all("account acme" in text and "`minilm`" in text for text in named.values())
    assert "100% of the newest 6" in named["anna"] and "German" in named["anna"] and "Chinese" in named["min"]
    assert "67% of the newest 9" in named["mostly"]
    assert all("embedders.md" in one["do"] and "index embed --to bilingual" in one["do"] for one in found)


async def test_an_embedder_that_knows_them_is_fine(server: ServerProcess) -> None:
    (found,) = await findings(server.data_dir, "bilingual")
    assert found["state"] == "ok" and "German" in found["found"] and "5 of 8 users" in found["found"]


async def test_of_a_model_that_nobody_describes_nothing_is_said(server: ServerProcess) -> None:
    endpoint = {"url": "http://127.0.0.1:1/v1", "model": "any", "dimension": 8}
    assert await findings(server.data_dir, "openai", embedding=endpoint) == []
    assert await findings(server.data_dir, "minilm+openai", embedding=endpoint) == []
    assert await findings(server.data_dir, "none") == []
    found = await findings(server.data_dir, "openai", embedding={**endpoint, "languages": ["de", "en"]})
    assert set(users(found)) == {"min"}
    assert "index embed --to bilingual" in found[0]["do"]


async def test_a_store_without_a_server_is_read_too_and_left_as_it_was(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data").start()
    try:
        await asyncio.to_thread(talk, server.address)
    finally:
        server.stop()
    before = sorted(path.name for path in server.data_dir.iterdir())
    assert set(users(await findings(server.data_dir, "minilm"))) == {"anna", "min", "mostly"}
    assert sorted(path.name for path in server.data_dir.iterdir()) == before


async def test_a_store_in_postgresql(tmp_path: Path, postgres_server: PostgresServer) -> None:
    name = postgres_server.create()
    url = postgres_server.url(name)
    server = ServerProcess(tmp_path / "data", {"RUNEKEEP_STORE_URL": url}).start()
    try:
        await asyncio.to_thread(talk, server.address)
        found = await findings(server.data_dir, "minilm", store_url=url)
    finally:
        server.stop()
    assert set(users(found)) == {"anna", "min", "mostly"}
    postgres_server.drop(name)
    (found_nothing,) = await findings(server.data_dir, "minilm", store_url=url)
    assert found_nothing["state"] == "skipped"


async def test_a_new_installation_has_nothing_to_tell(tmp_path: Path) -> None:
    (found,) = await findings(tmp_path / "data", "minilm")
    assert found["state"] == "ok" and not list(tmp_path.iterdir())


async def test_of_many_users_some_are_named_and_the_others_counted(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runekeep_server.doctor.languages.MAX_NAMED", 1)
    first, others = await findings(server.data_dir, "minilm")
    assert "user anna" in first["found"] and "2 more of the 5 users" in others["found"]
