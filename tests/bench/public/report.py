"""Sums up a run: accuracy by category, with tokens and money for each question."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from runekeep.v1 import common_pb2
from runekeep_server.tasks.prices import Price, set_cost
from tests.bench.public.cases import Case, Question
from tests.bench.public.run import Run, commit_key
from tests.bench.public.state import Usage

OTHERS = ("f1", "whole_only")
"""Further measures that the tables show, where a benchmark has them."""


class Bill:
    """Counts tokens and money. `unpriced`: models without a price."""

    def __init__(self, prices: Mapping[str, Price]) -> None:
        self._prices = prices
        self.unpriced: set[str] = set()

    def cost(self, usage: Usage) -> dict[str, Any]:
        """Returns calls, tokens and US dollars; dollars are None if the price of a model is unknown."""
        return {
            "calls": sum(one.calls for one in usage),
            "input_tokens": sum(one.input_tokens + one.cache_write_tokens + one.cache_read_tokens for one in usage),
            "output_tokens": sum(one.output_tokens for one in usage),
            "usd": self._dollars(usage),
        }

    def _dollars(self, usage: Usage) -> float | None:
        dollars: float | None = 0.0
        for one in usage:
            priced = common_pb2.TokenUsage()
            priced.CopyFrom(one)
            set_cost(priced, self._prices)
            if not priced.HasField("cost_usd"):
                self.unpriced.add(one.model)
                dollars = None
            elif dollars is not None:
                dollars += priced.cost_usd
        return dollars


def summarize(run: Run, cases: Sequence[Case], prices: Mapping[str, Price]) -> dict[str, Any]:
    """Returns the result of a run. Accuracy is the mean score of the questions that have one; `open` says why others
    have none."""
    bill = Bill(prices)
    rows = [_row(run, one, bill) for case in cases for one in case.questions]
    categories = dict.fromkeys(row["category"] for row in rows)
    groups = dict.fromkeys(name for row in rows for name in row["groups"])
    by_category = {name: _means(row for row in rows if row["category"] == name) for name in categories}
    scores = [one["accuracy"] for one in by_category.values() if one["accuracy"] is not None]
    commits = [run.state.get(commit_key(case), session) for case in cases for session in case.sessions]
    return {
        "bench": "public",
        "benchmark": run.benchmark.name,
        "answer_model": str(run.answerer.name),
        "judge_model": str(run.judge.name),
        "token_budget": run.budget,
        **_means(rows),
        "accuracy_mean_of_categories": round(statistics.mean(scores), 4) if scores else None,
        "by_category": by_category,
        "groups": {name: _means(row for row in rows if name in row["groups"]) for name in groups},
        "commits": {
            "commits": len(commits),
            "not_completed": sum(one != "completed" for one in commits),
            **bill.cost([one for case in cases for one in run.state.spent(commit_key(case))]),
        },
        "by_question": rows,
        "open": run.open,
        "models_without_price": sorted(bill.unpriced),
    }


def _row(run: Run, question: Question, bill: Bill) -> dict[str, Any]:
    score = run.scores.get(question.id)
    recalled = run.state.get(run.recall_key(question))
    return {
        "id": question.id,
        "category": question.category,
        "groups": list(question.groups),
        "score": None if score is None else score.score,
        "others": {} if score is None else dict(score.others),
        "recalled_tokens": None if recalled is None else recalled["tokens"],
        "answer": bill.cost(run.state.spent(run.answer_key(question))),
        "judge": bill.cost(run.state.spent(run.judge_key(question))),
    }


def _means(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over questions with a score; `questions` counts the others too."""
    every = list(rows)
    scored = [row for row in every if row["score"] is not None]
    others = dict.fromkeys(name for row in scored for name in row["others"])
    means: dict[str, Any] = {
        "questions": len(every),
        "scored": len(scored),
        "accuracy": _mean([row["score"] for row in scored]),
        **{name: _mean([row["others"][name] for row in scored if name in row["others"]]) for name in others},
        "recalled_tokens": _mean([row["recalled_tokens"] for row in scored]),
    }
    for step in ("answer", "judge"):
        for name in ("input_tokens", "output_tokens", "usd"):
            means[f"{step}_{name}"] = _mean([row[step][name] for row in scored])
    return means


def _mean(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return round(statistics.mean(known), 6) if known and len(known) == len(values) else None


def tables(made: Mapping[str, Any]) -> list[Table]:
    """Returns the summary as tables of at most 80 columns."""
    groups: dict[str, Mapping[str, Any]] = {**made["by_category"], **made["groups"], "all": made}
    others = [name for name in OTHERS if any(name in row for row in groups.values())]
    scores = _table(f"{made['benchmark']}, Recall within {made['token_budget']} tokens")
    for heading in ("questions", "accuracy", *others, "tokens recalled"):
        scores.add_column(heading, justify="right")
    costs = _table("Tokens and US dollars for each question")
    for heading in ("answer in", "out", "USD", "judge in", "out", "USD"):
        costs.add_column(heading, justify="right")
    for name, row in groups.items():
        counted = str(row["questions"]) if row["scored"] == row["questions"] else f"{row['scored']}/{row['questions']}"
        figures = [_number(row.get(other), 3) for other in ("accuracy", *others)]
        scores.add_row(name, counted, *figures, _number(row["recalled_tokens"]))
        costs.add_row(name, *_costs(row))
    commits = made["commits"]
    paid = _table("All commits")
    for heading in ("commits", "not completed", "calls", "in", "out", "USD"):
        paid.add_column(heading, justify="right")
    counts = [str(commits[name]) for name in ("commits", "not_completed", "calls", "input_tokens", "output_tokens")]
    paid.add_row("", *counts, _number(commits["usd"], 2))
    return [scores, costs, paid]


def _table(title: str) -> Table:
    drawn = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    drawn.add_column("", no_wrap=True)
    return drawn


def _costs(row: Mapping[str, Any]) -> list[str]:
    return [
        _number(row[f"{step}_{name}"], 5 if name == "usd" else 0)
        for step in ("answer", "judge")
        for name in ("input_tokens", "output_tokens", "usd")
    ]


def _number(value: float | None, digits: int = 0) -> str:
    return "?" if value is None else f"{value:.{digits}f}"
