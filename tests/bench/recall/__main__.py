"""Recall of evidence on a file of the LoCoMo data set, which is no part of this repository.

    python -m tests.bench.recall FILE [--embedder NAME] [--reranker NAME] [--ablations] [--datatypes]
                                 [--only NAME] [--json]

A real server takes every conversation in, one user each, and one commit a session; nobody extracts. Its embedder is
`minilm` unless another is named, and it has no reranker; the settings of those come from the environment
(RUNEKEEP_EMBEDDING__URL and so on), and so do those of the ranking. Every search must be reranked: one without ends the
run. Then each question of the categories 1 to 4 is put to `find` over passages, where
one result is one turn, and to Recall. Figures are means over the questions of a conversation, then over conversations;
times are those of one caller who asks one question after the other, for ten results. `session_recall_K` counts the
first K sessions that the ranking names, each once; `result_session_recall_K` the sessions of the first K results. The
last line is one JSON object.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from runekeep_storage.index.base import VectorDatatype
from tests.bench.figures import p95
from tests.bench.recall.datatypes import compare
from tests.bench.recall.locomo import Conversation, read
from tests.bench.recall.run import Told, serving
from tests.bench.recall.score import DEPTHS, FIGURES, Asked, by_category, figures

BUDGETS = (1000, 2000, 4000)
"""Tokens that Recall is given."""

ABLATIONS = {
    "all": {},
    "no vectors": {"dense_weight": "0"},
    "no words": {"sparse_weight": "0"},
    "no neighbours": {"neighbour_decay": "0"},
    "no facts": {"fact_weight": "0"},
    "no sessions": {"session_weight": "0"},
}
"""Each part of the ranking taken away by its setting. That the vector of a message is of the end of the one before it
too is no setting."""


async def answer_all(
    data_dir: Path,
    embedder: str,
    reranker: str,
    search: dict[str, str],
    conversations: Sequence[Conversation],
    *,
    fresh: bool,
    progress: Progress,
    datatype: str = "float32",
) -> tuple[dict[str, list[Asked]], dict[int, dict[str, list[Told]]]]:
    """Answers by user, and what Recall told, by budget and user; of a `fresh` directory alone."""
    async with serving(data_dir, embedder, reranker, search, datatype) as callers:
        if fresh:
            for conversation in progress.track(conversations, description="taking in"):
                await callers.take_in(conversation)
            turns = sum(len(one.session_of) for one in conversations)
            bar = progress.add_task("indexing", total=turns)
            while left := sum([await callers.waiting(one) for one in conversations]):
                progress.update(bar, completed=turns - left)
                await asyncio.sleep(0.5)
            progress.update(bar, completed=turns)
        await callers.ready(conversations[0].user, conversations[0].questions[0])
        asked = {
            one.user: await callers.ask(one.user, one.questions)
            for one in progress.track(conversations, description=f"asking, {search or 'all parts'}")
        }
        told: dict[int, dict[str, list[Told]]] = {}
        for budget in BUDGETS if fresh else ():
            told[budget] = {
                one.user: await callers.tell(one.user, one.questions, budget)
                for one in progress.track(conversations, description=f"recall within {budget} tokens")
            }
        return asked, told


async def run(
    conversations: Sequence[Conversation],
    embedder: str,
    reranker: str,
    *,
    ablations: bool,
    datatypes: bool,
    progress: Progress,
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        data_dir = Path(directory) / "data"
        asked, told = await answer_all(data_dir, embedder, reranker, {}, conversations, fresh=True, progress=progress)
        made: dict[str, Any] = {"bench": "recall", "embedder": embedder, "reranker": reranker}
        made |= figures(asked, conversations)
        times = sorted(one.milliseconds for some in asked.values() for one in some)
        made["find_p50_ms"] = round(statistics.median(times), 2)
        made["find_p95_ms"] = round(p95(times), 2)
        made["questions"] = len(times)
        made["by_category"] = by_category(asked, conversations)
        made["by_conversation"] = by_conversation(asked, conversations)
        made["recall"] = {budget: _told(some) for budget, some in told.items()}
        if ablations:
            parts = {}
            for name, search in ABLATIONS.items():
                parts[name] = made
                if search:
                    answers, _ = await answer_all(
                        data_dir, embedder, reranker, search, conversations, fresh=False, progress=progress
                    )
                    parts[name] = figures(answers, conversations)
                    parts[name]["by_conversation"] = by_conversation(answers, conversations)
            made["ablations"] = {
                name: {key: value for key, value in some.items() if "_recall_" in key or key == "by_conversation"}
                for name, some in parts.items()
            }
        if datatypes:

            async def ask(datatype: VectorDatatype) -> dict[str, list[Asked]]:
                answers, _ = await answer_all(
                    data_dir,
                    embedder,
                    reranker,
                    {},
                    conversations,
                    fresh=False,
                    progress=progress,
                    datatype=datatype,
                )
                return answers

            made["datatypes"] = await compare(data_dir, embedder, conversations, ask)
        return made


def by_conversation(asked: dict[str, list[Asked]], conversations: Sequence[Conversation]) -> dict[str, dict[str, Any]]:
    return {user: {"questions": len(some), **figures({user: some}, conversations)} for user, some in asked.items()}


def _told(some: dict[str, list[Told]]) -> dict[str, float]:
    """Mean tokens, and the share of evidence that is told in whole."""
    shares = [
        statistics.mean(len(one.messages & one.question.evidence) / len(one.question.evidence) for one in told)
        for told in some.values()
    ]
    tokens = [one.tokens for told in some.values() for one in told]
    return {"tokens": round(statistics.mean(tokens), 1), "turn_recall": round(statistics.mean(shares), 4)}


_TITLES = ("turns", "sessions", "of results")


def tables(made: dict[str, Any]) -> list[Table]:
    depths = ", ".join(map(str, DEPTHS))

    def table(title: str, rows: dict[str, dict[str, Any]]) -> Table:
        drawn = Table(title=f"{title}, at {depths}", title_justify="left")
        drawn.add_column("", no_wrap=True)
        for heading in _TITLES:
            drawn.add_column(heading, justify="right", no_wrap=True)
        for label, row in rows.items():
            drawn.add_row(label, *(" ".join(f"{row[f'{of}_{depth}']:.3f}" for depth in DEPTHS) for of in FIGURES))
        return drawn

    drawn = [
        table("Recall of evidence", {**made["by_conversation"], "mean": made}),
        table("By category", {f"{name} ({row['questions']})": row for name, row in made["by_category"].items()}),
    ]
    if "ablations" in made:
        drawn.append(table("Parts of the ranking", made["ablations"]))
    if "datatypes" in made:
        compared = Table(title="Datatypes of the index", title_justify="left")
        names = next(iter(made["datatypes"].values()))
        for column in ("", *names):
            compared.add_column(column, justify="right")
        for name, row in made["datatypes"].items():
            compared.add_row(name, *map(str, row.values()))
        drawn.append(compared)
    spent = Table(title="Recall, within a budget of tokens", title_justify="left")
    for column in ("budget", "tokens", "evidence told"):
        spent.add_column(column, justify="right")
    for budget, row in made["recall"].items():
        spent.add_row(str(budget), f"{row['tokens']:.0f}", f"{row['turn_recall']:.3f}")
    return [*drawn, spent]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--embedder", default="minilm", metavar="NAME", help="RUNEKEEP_EMBEDDER of the server")
    parser.add_argument("--reranker", default="none", metavar="NAME", help="RUNEKEEP_RERANKER of the server")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this conversation; may repeat")
    parser.add_argument("--ablations", action="store_true", help="also without each part of the ranking")
    parser.add_argument("--datatypes", action="store_true", help="also by an index of each datatype")
    parser.add_argument("--json", action="store_true", help="print the JSON object alone")
    given = parser.parse_args()
    conversations = [one for one in read(given.file) if not given.only or one.user in given.only]
    if not conversations:
        parser.error("no conversation of the file has that name")
    with Progress(console=Console(stderr=True), transient=True) as progress:
        made = asyncio.run(
            run(
                conversations,
                given.embedder,
                given.reranker,
                ablations=given.ablations,
                datatypes=given.datatypes,
                progress=progress,
            )
        )
    if not given.json:
        console = Console()
        for table in tables(made):
            console.print(table)
        console.print(f"find: p50 {made['find_p50_ms']} ms, p95 {made['find_p95_ms']} ms, one caller")
    print(json.dumps(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
