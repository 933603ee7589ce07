"""Runs a public benchmark of long-term memory on a data file, with models that you configure and pay for.

    python -m tests.bench.public locomo|longmemeval|beam --data FILE... [--budget TOKENS] [--answer ENGINE[:MODEL]]
        [--judge ENGINE[:MODEL]] [--engine NAME] [--prices FILE] [--work FOLDER] [--json]

A real server stores each case under a user of its own, with one commit for each session, and extractor processes work
on the commits. Then each question goes to Recall; a model answers it from the recalled text alone, and a model judges
the answer by the protocol of the benchmark. Settings and keys are the extractor's (RUNEKEEP_EXTRACTOR_*, ANTHROPIC_*,
OPENAI_*), and the server's for the embedder and the ranking (RUNEKEEP_EMBEDDING__*, RUNEKEEP_SEARCH__*).

A run that breaks continues when it is started again: the folder of the run holds the server's data and each paid
answer. Exit status: 0 every question has a score; 1 the run broke off, some questions have no score (another run asks
for it again), or commits failed; 2 wrong arguments. The last line of the output is one JSON object: see
docs/bench/public.md.
"""

import argparse
import asyncio
import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import structlog
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from runekeep_common.secret_files import SecretFileError
from runekeep_extractor.engine.interface import NotConfigured
from runekeep_server.tasks.prices import PriceFileError, load_prices
from tests.acceptance.processes import Processes, processes
from tests.bench.public.beam import Beam
from tests.bench.public.cases import Benchmark, Case, DataError
from tests.bench.public.locomo import Locomo
from tests.bench.public.longmemeval import LongMemEval
from tests.bench.public.models import Model, ModelName, name_of
from tests.bench.public.report import summarize, tables
from tests.bench.public.run import Interrupted, Run
from tests.bench.public.state import OtherSettings, State

BENCHMARKS: Mapping[str, Benchmark] = {one.name: one for one in (Locomo(), LongMemEval(), Beam())}
_OF_EXTRACTORS = ("RUNEKEEP_EXTRACTOR_", "ANTHROPIC_", "OPENAI_")
_OF_SERVERS = ("RUNEKEEP_EMBEDDING__", "RUNEKEEP_SEARCH__")


def choose(cases: Sequence[Case], only: Sequence[str], each: int | None) -> list[Case]:
    """Returns the cases named by `only`, all if it names none, with the first `each` questions of every category; cases
    without a question are left out. Raises DataError if nothing is left, and for a user that occurs twice."""
    twice = [user for user, count in Counter(case.user for case in cases).items() if count > 1]
    if twice:
        raise DataError(f"the data has several cases called {twice[0]}: run the files one by one")
    seen: Counter[str] = Counter()
    chosen = []
    for case in cases:
        if only and case.user not in only:
            continue
        questions = []
        for question in case.questions:
            if each is None or seen[question.category] < each:
                seen[question.category] += 1
                questions.append(question)
        if questions:
            chosen.append(replace(case, questions=questions))
    if not chosen:
        raise DataError("no question of the data is chosen")
    return chosen


def digest(files: Sequence[Path]) -> str:
    """Returns a digest of the contents, whatever the names."""
    whole = hashlib.sha256()
    for file in files:
        whole.update(hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()[:16]


def of_environment(prefixes: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


def arguments(argv: Sequence[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--data", type=Path, nargs="+", required=True, metavar="FILE", help="files of the data set")
    parser.add_argument("--budget", type=int, default=2000, metavar="TOKENS", help="token budget of each recall")
    parser.add_argument("--engine", metavar="ENGINE[:MODEL]", help="extracts; default: the extractor's settings")
    parser.add_argument("--answer", metavar="ENGINE[:MODEL]", help="answers; default: the extractor's settings")
    parser.add_argument("--judge", metavar="ENGINE[:MODEL]", help="judges; default: the model that answers")
    parser.add_argument("--embedder", default="minilm", metavar="NAME", help="RUNEKEEP_EMBEDDER of the server")
    parser.add_argument("--prices", type=Path, metavar="FILE", help="prices of models, in the server's form")
    parser.add_argument("--only", action="append", default=[], metavar="CASE", help="this case; may be repeated")
    parser.add_argument("--each", type=int, metavar="N", help="only the first N questions of each category")
    parser.add_argument("--concurrency", type=int, default=4, metavar="N", help="cases, jobs and questions at once")
    parser.add_argument("--extractors", type=int, default=2, metavar="N", help="extractor processes")
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="of the run; default: in build/bench/public")
    parser.add_argument("--json", action="store_true", help="print the JSON object alone")
    given = parser.parse_args(argv)
    for name in ("budget", "concurrency", "extractors"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return parser, given


def extract(fleet: Processes, name: ModelName, given: argparse.Namespace) -> None:
    settings = of_environment(_OF_EXTRACTORS)
    if name.model:
        settings["RUNEKEEP_EXTRACTOR_MODEL"] = name.model
    for number in range(1, given.extractors + 1):
        fleet.extractor(
            f"extractor-{number}", "--engine", name.engine, "--concurrency", str(given.concurrency), **settings
        )


async def play(run: Run, cases: Sequence[Case]) -> str:
    """Returns why the run broke off; empty if it went to its end."""
    try:
        await run.play(cases)
    except Interrupted as interrupted:
        return str(interrupted)
    finally:
        await run.answerer.close()
        await run.judge.close()
    return ""


def main(argv: Sequence[str] | None = None, *, prepared: bool = False) -> int:
    """Returns the exit status. `prepared`: see `Processes`."""
    parser, given = arguments(argv)
    console = Console(stderr=True)
    benchmark = BENCHMARKS[given.benchmark]
    try:
        cases = choose(benchmark.read(given.data), given.only, given.each)
        prices = load_prices(given.prices) if given.prices else {}
        extracting, answering = name_of(given.engine), name_of(given.answer)
        answerer = Model(answering)
        judge = Model(name_of(given.judge) if given.judge else answering)
        data = digest(given.data)
        kept = {"benchmark": given.benchmark, "data": data, "extractor": str(extracting), "embedder": given.embedder}
        work: Path = given.work or Path("build/bench/public") / f"{given.benchmark}-{data}"
        state = State(work, kept)
    except ValidationError as error:
        # Without the values: one of them may be a key.
        parser.error("; ".join(f"{one['loc']}: {one['msg']}" for one in error.errors(include_input=False)))
    except (DataError, PriceFileError, OtherSettings, NotConfigured, SecretFileError, ValueError) as error:
        parser.error(str(error))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        closing(state),
        processes(work.resolve(), prepared=prepared) as fleet,
        Progress(*columns, console=console, disable=given.json) as progress,
    ):
        fleet.server(**of_environment(_OF_SERVERS), RUNEKEEP_EMBEDDER=given.embedder)
        extract(fleet, extracting, given)
        commits = progress.add_task("commits", total=sum(len(case.sessions) for case in cases))
        questions = progress.add_task("questions", total=sum(len(case.questions) for case in cases))
        run = Run(
            benchmark,
            state,
            fleet.address,
            answerer,
            judge,
            given.budget,
            given.concurrency,
            on_commit=lambda: progress.advance(commits),
            on_question=lambda: progress.advance(questions),
        )
        try:
            broken = asyncio.run(play(run, cases))
        except KeyboardInterrupt:
            broken = "interrupted"
    if broken:
        console.print(
            f"The run broke off: {broken}. What was paid for is in {work}: start it again to continue.", soft_wrap=True
        )
        return 1
    made = summarize(run, cases, prices)
    if not given.json:
        for table in tables(made):
            Console().print(table)
    print(json.dumps(made))
    return 1 if made["open"] or made["commits"]["not_completed"] else 0


if __name__ == "__main__":
    # stdout has the result alone.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    sys.exit(main())
