"""The command that shows what models cost."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.options import client_command
from runekeep.cli.common.output import Output
from runekeep.cli.tasks.token_table import dollars, show_token_table, total_tokens

if TYPE_CHECKING:
    from runekeep.client.sync_client import Client
    from runekeep.client.tasks.results import TokenUsage, Usage


@client_command
def show(
    client: "Client",
    output: Output,
    session: Annotated[str, typer.Option("--session", metavar="ID", help="Only this session.")] = "",
    whole_account: Annotated[bool, typer.Option("--whole-account", help="All users of the account together.")] = False,
    since: Annotated[
        datetime | None,
        typer.Option("--since", metavar="DATE", help="Only from this day (UTC) on.", formats=["%Y-%m-%d"]),
    ] = None,
) -> None:
    """Show the tokens that models used, by phase and model, the highest first."""
    if session and whole_account:
        raise ValueError("give --session or --whole-account, not both")
    usage = client.usage(session, account=whole_account, start_time=since)
    if output.as_json:
        output.json(usage)
        return
    show_token_table(output, "phase", usage.usage, "No model was called.")
    if entries := usage.usage:
        output.say(f"\n{sum(map(total_tokens, entries)):,} tokens in all{_describe_money(entries)}.")
    output.say(_describe_today(usage), "dim")


def _describe_money(entries: "Sequence[TokenUsage]") -> str:
    costs = [entry.cost_usd for entry in entries]
    known = [cost for cost in costs if cost is not None]
    if not known:
        return ""
    return f", {dollars(sum(known))}" + (" without the models of unknown price" if len(known) < len(costs) else "")


def _describe_today(usage: "Usage") -> str:
    spent, budget = usage.spent_today, usage.daily_token_budget
    of = f" of {budget:,}" if budget is not None else ""
    return f"The account spent {spent:,}{of} tokens today (UTC)."
