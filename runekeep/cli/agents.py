"""Commands for coding agents: install hooks, and run them."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from runekeep.cli.common.errors import fail
from runekeep.cli.common.options import Account, Address, AsJson, User
from runekeep.cli.common.output import Output

_NAMES = "claude-code, codex or cursor"
_WARNING_SECONDS = 2.0


def install(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help=f"{_NAMES}.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take the hooks out again.")] = False,
    project: Annotated[
        Path | None,
        typer.Option("--project", metavar="DIR", help="Settings of this project, not of your home directory."),
    ] = None,
    address: Address = None,
    user: User = None,
    account: Account = None,
    as_json: AsJson = False,
) -> None:
    """Give a coding agent memory without asking: hooks that recall into its prompts and hand in its conversations.

    Other entries of the agent's settings stay as they are. Set RUNEKEEP_API_KEY in the agent's environment, if the
    server asks for keys.
    """
    from runekeep.hooks.agents import AGENTS
    from runekeep.hooks.installing import SettingsFileError, hook_command
    from runekeep.hooks.installing import install as write_hooks
    from runekeep.hooks.installing import remove as remove_hooks
    from runekeep.hooks.running import Caller
    from runekeep.hooks.state import HookState

    known = AGENTS.get(agent)
    if known is None:
        raise typer.BadParameter(f"expected {_NAMES}", param_hint="AGENT")
    path = known.settings_file(project)
    try:
        if remove:
            changed = remove_hooks(known, path)
        else:
            command = hook_command(known, Caller(address, account, user).arguments)
            changed = write_hooks(known, path, command)
    except (SettingsFileError, OSError) as error:
        fail(str(error))
    output = Output(as_json)
    if as_json:
        output.json({"agent": agent, "file": str(path), "installed": not remove, "changed": changed})
        return
    output.say(f"{'Removed from' if remove else 'Installed in'} {path}{'' if changed else ' (no change)'}.")
    if not remove:
        output.say(f"Hooks log to {HookState().log_file}.")
        if known.note:
            output.say(known.note)
        if warning := _warning(address, account, user):
            output.say(warning, "yellow")


def _warning(address: str | None, account: str | None, user: str | None) -> str:
    """Says what keeps the hooks from finding memories: hooks themselves never disturb the agent with that."""
    from runekeep.cli.common.empty_space import describe_empty_space
    from runekeep.client.connection.errors import RunekeepError
    from runekeep.client.sync_client import Client

    try:
        with Client(address, account=account, user=user, timeout=_WARNING_SECONDS) as client:
            return describe_empty_space(client)
    except (RunekeepError, ValueError) as error:
        return f"Memory cannot be reached now, and the agent works without it: {error}"


class HookCommand(TyperCommand):
    """Ends with 0 on wrong usage too: an agent may take 2 as an order to stop."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().make_context(*args, **kwargs)
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            from runekeep.hooks.state import HookState

            HookState().log(f"wrong usage of `runekeep hook`: {error}")
            raise typer.Exit(0) from error


def hook(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help=f"{_NAMES}.")] = "",
    hand_in: Annotated[bool, typer.Option("--hand-in", help="Hand in what hooks have put aside, and end.")] = False,
    start_budget: Annotated[
        int, typer.Option("--start-budget", min=100, clamp=True, help="Maximum tokens at the start of a session.")
    ] = 800,
    prompt_budget: Annotated[
        int, typer.Option("--prompt-budget", min=50, clamp=True, help="Maximum tokens with a prompt.")
    ] = 600,
    address: Address = None,
    user: User = None,
    account: Account = None,
) -> None:
    """Run a hook: read the agent's JSON from stdin and print what it adds to the prompt. `runekeep install` sets it up.

    The status is 0 whatever is down or wrong, since the agent must go on; the log says what went wrong.
    """
    from runekeep.hooks.agents import AGENTS
    from runekeep.hooks.recalling import Budgets
    from runekeep.hooks.running import Caller, Hook
    from runekeep.hooks.running import hand_in as hand_in_spooled
    from runekeep.hooks.state import HookState

    caller = Caller(address, account, user)
    state = HookState(owner=caller.fingerprint)
    if hand_in:
        raise typer.Exit(0 if hand_in_spooled(caller, state) else 1)
    known = AGENTS.get(agent)
    if known is None:
        state.log(f"wrong usage of `runekeep hook`: expected the agent {_NAMES}")
        return
    answer = Hook(known, caller, Budgets(start_budget, prompt_budget), state).run()
    if answer:
        sys.stdout.write(answer + "\n")
