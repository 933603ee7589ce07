"""Measures how many questions about a life Recall's text answers, within budgets of 200 to 1,600 tokens.

    python -m tests.bench.quality [--engine none|offline|recorded] [--provider NAME] [--embedder NAME] [--life NAME]...
    python -m tests.bench.quality --engine recorded --embedder NAME --relevance FILE
    python -m tests.bench.quality --engine recorded --life NAME --record FOLDER --origin WHO

A life is some months of sessions of one user, see README.md. A real server with the built-in embedder stores each life
under a user of its own, with one commit for each session. An extractor works on the commits without a model
(`offline`), with recorded answers (`recorded`), or not at all (`none`).

Each question goes to Recall on its day: for memories, for passages, and for both. It counts as answered if the text has
an alternative of each group of its answers, and gives no outdated value as current. The best result of `find` for each
question gives the relevance curve of an embedder. `--relevance` writes it to a file for the setting `relevance_file`.

With `--record`, prompts without a recorded answer are written to the folder, and the run waits for their answers (see
answers.py). The last line of the output is one JSON object.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from runekeep import AsyncClient
from runekeep_server.services import embedding_options
from runekeep_server.settings import load_settings
from runekeep_storage.embedders import open_embedder
from tests.acceptance.processes import Processes, processes
from tests.bench.quality import answers, lives
from tests.bench.quality.answers import Answers
from tests.bench.quality.lives import Life
from tests.bench.quality.relevance import calibrate, write_curve
from tests.bench.quality.run import BUDGETS, SOURCES, Commit, PlayedLife, play
from tests.bench.quality.score import Judgement
from tests.bench.recall.run import model_settings
from tests.doubles.chat_api import ChatApi
from tests.doubles.messages_api import MessagesApi

# A person or model that answers prompts from files takes minutes, where a model behind an API takes seconds.
PATIENT_SERVER = {"RUNEKEEP_ATTEMPT_SECONDS": "86400"}
PATIENT_EXTRACTOR = {"RUNEKEEP_EXTRACTOR_MODEL_TIMEOUT": "43200", "ANTHROPIC_API_KEY": "any"}
UNKNOWN_TOKENS = 100
"""A question about an unknown subject should get fewer tokens than this."""


def play_all(
    some: Sequence[Life],
    engine: str,
    provider: str,
    embedder: str,
    record: Path | None,
    origin: str,
    on_session_end: Callable[[], None],
) -> tuple[list[PlayedLife], list[Answers]]:
    played, every = [], []
    for life in some:
        with ExitStack() as stack:
            # The index process may still write for a moment after its server has stopped.
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
            fleet: Processes = stack.enter_context(processes(directory, prepared=False))
            fleet.server(**PATIENT_SERVER, **model_settings(), RUNEKEEP_EMBEDDER=embedder)
            recorded = Answers(answers.DIRECTORY / f"{life.about.life}.jsonl", record, origin)
            if engine == "offline":
                fleet.extractor("quality", "--engine", "offline")
            elif engine == "recorded":
                api = stack.enter_context(MessagesApi() if provider == "anthropic" else ChatApi(streams=True))
                api.otherwise = recorded.behave if provider == "anthropic" else recorded.behave_as_chat
                settings = {**PATIENT_EXTRACTOR, f"{provider.upper()}_BASE_URL": api.url}
                if provider == "openai":
                    settings["RUNEKEEP_EXTRACTOR_MODEL"] = "recorded"
                fleet.extractor("quality", "--engine", provider, "--concurrency", "1", **settings)
            played.append(asyncio.run(play_one(life, fleet.address, engine != "none", on_session_end)))
            every.append(recorded)
    return played, every


async def play_one(life: Life, address: str, extracts: bool, on_session_end: Callable[[], None]) -> PlayedLife:
    async with AsyncClient(address, user=life.about.life, timeout=60) as client:
        return await play(life, client, extracts=extracts, on_session_end=on_session_end)


Counts = dict[str, dict[str, int]]
"""By sources and budget."""


def summarize(asked: Sequence[Judgement], commits: Sequence[Commit]) -> dict[str, Any]:
    answerable = [one for one in asked if one.question.answers]
    unknown = [one for one in asked if one.question.never == "subject"]
    names = dict.fromkeys(one.life for one in answerable)
    kinds = sorted({kind for one in answerable for kind in one.question.kinds})
    return {
        "questions": _questions(answerable),
        "answered": _counts(answerable),
        "outdated": _table(answerable, lambda some: sum(one.is_stale for one in some)),
        "kinds": {kind: _group([one for one in answerable if kind in one.question.kinds]) for kind in kinds},
        "lives": {name: _group([one for one in answerable if one.life == name]) for name in names},
        "unknown_subjects": {
            "questions": _questions(unknown),
            "few_tokens": _table(unknown, lambda some: sum(one.tokens < UNKNOWN_TOKENS for one in some)),
        },
        "tokens": _table(answerable, lambda some: round(sum(one.tokens for one in some) / max(len(some), 1))),
        "commits": {
            "commits": len(commits),
            "not_completed": sum(one.status not in ("completed", "not extracted") for one in commits),
            "calls": sum(one.calls for one in commits),
            "input_tokens": sum(one.input_tokens for one in commits),
            "output_tokens": sum(one.output_tokens for one in commits),
        },
    }


def _group(asked: Sequence[Judgement]) -> dict[str, Any]:
    return {"questions": _questions(asked), "answered": _counts(asked)}


def _questions(asked: Sequence[Judgement]) -> int:
    return len({(one.life, one.question.question) for one in asked})


def _counts(asked: Sequence[Judgement]) -> Counts:
    return _table(asked, lambda some: sum(one.answers for one in some))


def _table(asked: Sequence[Judgement], value: Callable[[Sequence[Judgement]], int]) -> Counts:
    return {
        sources: {
            str(budget): value([one for one in asked if (one.sources, one.budget) == (sources, budget)])
            for budget in BUDGETS
        }
        for sources in SOURCES
    }


def show(console: Console, made: dict[str, Any]) -> None:
    unknown = made["unknown_subjects"]
    columns = {
        f"answered of {made['questions']}": made["answered"],
        **{f"{kind} of {one['questions']}": one["answered"] for kind, one in made["kinds"].items()},
        "outdated": made["outdated"],
        f"unknown, few tokens, of {unknown['questions']}": unknown["few_tokens"],
        "tokens": made["tokens"],
    }
    _show(console, columns)
    _show(console, {f"{life} of {one['questions']}": one["answered"] for life, one in made["lives"].items()})
    console.print(made["commits"])
    console.print(made["relevance"])


def _show(console: Console, columns: dict[str, Counts]) -> None:
    table = Table("", "budget", *columns)
    for sources in SOURCES:
        for budget in map(str, BUDGETS):
            table.add_row(sources, budget, *(str(counts[sources][budget]) for counts in columns.values()))
    console.print(table)


def model_of(embedder: str) -> str:
    """Returns the model of the embedder that the environment describes, by which the server finds its curve; empty
    for none."""
    settings = load_settings(None, {"embedder": embedder})
    opened = open_embedder(embedder, options=embedding_options(settings))
    return "" if opened is None else opened.model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("none", "offline", "recorded"), default="offline")
    parser.add_argument(
        "--provider",
        choices=("anthropic", "openai"),
        default="anthropic",
        help="the API through which recorded answers reach the extractor; new ones are recorded through anthropic",
    )
    parser.add_argument("--embedder", default="minilm", metavar="NAME", help="RUNEKEEP_EMBEDDER of the server")
    parser.add_argument("--life", action="append", default=[], help="play only this life; may be repeated")
    parser.add_argument("--record", type=Path, help="write prompts without a recorded answer to this folder")
    parser.add_argument("--origin", default="", help="who answers the prompts")
    parser.add_argument(
        "--relevance", type=Path, metavar="FILE", help="write the embedder's relevance curve to this file"
    )
    parser.add_argument("--json", action="store_true", help="print the JSON object alone")
    given = parser.parse_args()
    if given.record and not given.origin:
        parser.error("--record needs --origin: the recorded answers state who gave them")
    if given.record and given.provider != "anthropic":
        parser.error("--record needs --provider anthropic")
    model = model_of(given.embedder)
    if given.relevance and not model:
        parser.error("--relevance needs an embedder")
    files = [lives.DIRECTORY / f"{name}.jsonl" for name in given.life] or sorted(lives.DIRECTORY.glob("*.jsonl"))
    some = [lives.read(file) for file in files]
    console = Console(stderr=True, quiet=given.json)
    with Progress(console=console) as progress:
        bar = progress.add_task("sessions", total=sum(len(life.sessions) for life in some))
        played, recorded = play_all(
            some,
            given.engine,
            given.provider,
            given.embedder,
            given.record,
            given.origin,
            lambda: progress.advance(bar),
        )
    asked = [one for life in played for one in life.asked]
    made = summarize(asked, [commit for life in played for commit in life.commits])
    made["relevance"] = calibrate([score for life in played for score in life.best_scores])
    made["unanswered_prompts"] = [digest for one in recorded for digest in one.unanswered]
    made["older_prompts"] = [digest for one in recorded for digest in one.older]
    show(console, made)
    print(json.dumps(made))
    if given.relevance:
        try:
            write_curve(given.relevance, model, made["relevance"])
        except ValueError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
