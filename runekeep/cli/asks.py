"""The command that answers a question from memory."""

from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.formats import format_count
from runekeep.cli.common.options import client_command
from runekeep.cli.common.output import Output
from runekeep.cli.memories.completeness import list_missing
from runekeep.cli.tasks.token_table import dollars, total_tokens

if TYPE_CHECKING:
    from runekeep.client.asks import AnswerSource, AskResult
    from runekeep.client.sync_client import Client


@client_command
def ask(
    client: "Client",
    output: Output,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="Question in plain words.")],
    model_only: Annotated[
        bool, typer.Option("--model-only", help="Fail where no model answers, instead of printing a recall.")
    ] = False,
    timeout: Annotated[float | None, typer.Option("--timeout", min=1, help="Seconds to wait; default: 120.")] = None,
) -> None:
    """Answer a question from a user's memory. Each statement is followed by its sources. Notes go to stderr.

    With --json, each update is a line."""
    for update in client.ask(question, model_only=model_only, timeout=timeout):
        if output.as_json:
            output.json(update)
        elif update.kind == "statement":
            output.say(update.text)
            for source in update.sources:
                output.say(f"    {_name(source)}", style="dim")
        elif update.kind == "result":
            for gap in update.unknown:
                output.say(f"Not known: {gap}")
            for note in _notes(update):
                typer.secho(note, err=True, dim=True)


def _name(source: "AnswerSource") -> str:
    """Returns a memory's URI, or the session's URI and the number of a message."""
    return f"{source.uri} #{source.sequence}" if source.sequence else source.uri


def _notes(result: "AskResult") -> list[str]:
    notes = []
    if result.fallback is not None:
        what = " This is what a recall finds." if result.statements else ""
        notes.append(f"No model answered ({result.fallback_message}).{what}")
    lost = result.sources_removed or result.statements_removed or result.dropped_items
    if not result.statements and not lost:
        notes.append("Memory says nothing about it.")
    for number, one, many in (
        (result.sources_removed, "source that does not exist", "sources that do not exist"),
        (result.statements_removed, "statement without a source", "statements without a source"),
    ):
        if number:
            notes.append(f"Removed: {format_count(number, one, many)}.")
    if result.dropped_items:
        parts = format_count(result.dropped_items, "part", "parts")
        notes.append(f"Not readable: {parts} of the model's answer.")
    if result.omitted.over_budget:
        notes.append(f"Left out: {result.omitted.over_budget} without room.")
    notes.extend(list_missing(result))
    if result.usage:
        costs = [entry.cost_usd for entry in result.usage]
        known = [cost for cost in costs if cost is not None]
        money = f", {dollars(sum(known))}" if len(known) == len(costs) else ""
        calls = format_count(sum(entry.calls for entry in result.usage), "model call", "model calls")
        tokens = format_count(sum(map(total_tokens, result.usage)), "token", "tokens")
        notes.append(f"{calls}, {tokens}{money}.")
    return notes
