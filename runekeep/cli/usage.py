"""The command about what models cost."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.options import calling
from runekeep.cli.output import Output
from runekeep.cli.spending import show_spending, tokens

if TYPE_CHECKING:
    from runekeep.client.face import Client
    from runekeep.client.results import Usage


@calling
def show(
    client: "Client",
    output: Output,
    session: Annotated[str, typer.Option("--session", metavar="ID", help="Only of this session.")] = "",
    whole_account: Annotated[bool, typer.Option("--whole-account", help="Of all its users together.")] = False,
    since: Annotated[
        datetime | None, typer.Option("--since", metavar="DATE", help="From this day (UTC) on.", formats=["%Y-%m-%d"])
    ] = None,
) -> None:
    """Show what models cost, by phase and model, the costliest first."""
    if session and whole_account:
        raise ValueError("--session and --whole-account ask for two things: give one of them")
    usage = client.usage(session, account=whole_account, start_time=since)
    if output.as_json:
        output.json(usage)
        return
    show_spending(output, "phase", usage["usage"], "No model was called.")
    if usage["usage"]:
        output.say(f"\n{sum(map(tokens, usage['usage'])):,} tokens in all.")
    output.say(_of_the_day(usage), "dim")


def _of_the_day(usage: "Usage") -> str:
    spent, budget = usage["spent_today"], usage["daily_token_budget"]
    of = f" of {budget:,}" if budget is not None else ""
    return f"The account spent {spent:,}{of} tokens today (UTC)."
