"""Commands that create and change sessions: title, policy and automatic commits."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runekeep.cli.common.formats import format_count
from runekeep.cli.common.options import client_command
from runekeep.cli.common.output import Output

if TYPE_CHECKING:
    from runekeep.client.sessions.results import AutoCommit, AutoCommitRules, MemoryPolicy
    from runekeep.client.sync_client import Client

Title = Annotated[str | None, typer.Option("--title", help="Title for people.")]
Policy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="JSON",
        help="""Memory policy of the session, as `session show` prints it: '{"peer": {"enabled": true}}'.""",
    ),
]
Tokens = Annotated[
    int, typer.Option("--auto-commit-tokens", min=0, help="Commit automatically at this many live tokens; 0: never.")
]
Messages = Annotated[
    int,
    typer.Option("--auto-commit-messages", min=0, help="Commit automatically at this many live messages; 0: never."),
]
Idle = Annotated[
    float,
    typer.Option(
        "--auto-commit-idle",
        min=0,
        metavar="SECONDS",
        help="Commit automatically after this time without a message; 0: never.",
    ),
]
Keep = Annotated[
    int,
    typer.Option(
        "--auto-commit-keep", min=0, help="Number of newest messages that stay live after an automatic commit."
    ),
]


@client_command
def create(
    client: "Client",
    output: Output,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Id; default: the server chooses one.")] = "",
    title: Title = None,
    policy: Policy = None,
    tokens: Tokens = 0,
    messages: Messages = 0,
    idle: Idle = 0,
    keep: Keep = 0,
) -> None:
    """Create a session."""
    rules = _rules(tokens, messages, idle, keep)
    made = client.create_session(session, title=title or "", memory_policy=_policy(policy), auto_commit=rules)
    info = made.info()
    if output.as_json:
        output.json(info)
        return
    output.say(info.uri)
    if policy is not None:
        show_policy(output, info.memory_policy)
    if info.auto_commit:
        output.say(describe_auto_commit(info.auto_commit), "dim")


@client_command
def update(
    client: "Client",
    output: Output,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Id or URI.")],
    title: Title = None,
    policy: Policy = None,
    tokens: Tokens = 0,
    messages: Messages = 0,
    idle: Idle = 0,
    keep: Keep = 0,
    never: Annotated[bool, typer.Option("--no-auto-commit", help="Switch automatic commits off.")] = False,
) -> None:
    """Change a session's title, policy or automatic commits.

    New rules for automatic commits replace all earlier ones.
    """
    rules = _rules(tokens, messages, idle, keep)
    if rules and never:
        raise typer.BadParameter("cannot be combined with another --auto-commit option", param_hint="--no-auto-commit")
    if title is None and policy is None and not rules and not never:
        raise typer.BadParameter("give --title, --policy, --auto-commit-... or --no-auto-commit", param_hint="--title")
    handle = client.get_session(session)
    info = handle.update(title=title, memory_policy=_policy(policy), auto_commit={} if never else rules)
    if output.as_json:
        output.json(info)
        return
    output.say(info.uri)
    if policy is not None:
        show_policy(output, info.memory_policy)
    output.say(describe_auto_commit(info.auto_commit) if info.auto_commit else "No automatic commits.", "dim")


def show_policy(output: Output, policy: "MemoryPolicy | None") -> None:
    """Prints a policy as `--policy` takes it, and a note if it excludes session skills."""
    given = {name: part for name, part in policy.to_dict().items() if part is not None} if policy else {}
    output.say(f"Policy: {json.dumps(given)}", "dim")
    if policy is None or (policy.session_skills and not policy.session_skills.enabled):
        return
    if policy.self and not policy.self.enabled:
        output.say("No session skills are extracted, because `self` is not enabled.", "dim")
    elif policy.memory_types and "session_skills" not in policy.memory_types.names:
        output.say("No session skills are extracted, because `memory_types` does not name `session_skills`.", "dim")


def describe_auto_commit(rules: "AutoCommitRules") -> str:
    """Describes automatic commits in a sentence."""
    bounds = []
    if rules.pending_tokens:
        bounds.append(f"at {format_count(rules.pending_tokens, 'live token', 'live tokens')}")
    if rules.message_count:
        bounds.append(f"at {format_count(rules.message_count, 'live message', 'live messages')}")
    kept = rules.keep_recent_count
    if bounds and kept:
        bounds[-1] += f", but for the newest {kept}"
    idle = rules.idle
    if idle:
        # The commit of an idle session keeps none.
        bounds.append(f"{'all of them ' if bounds and kept else ''}after {idle:g} s without a message")
    if not bounds:
        return "No automatic commits."
    return f"Commits by itself {(', or ' if kept else ' or ').join(bounds)}."


def _rules(tokens: int, messages: int, idle: float, keep: int) -> "AutoCommit | None":
    rules: AutoCommit = {
        "pending_tokens": tokens,
        "message_count": messages,
        "idle": idle,
        "keep_recent_count": keep,
    }
    return rules if any(rules.values()) else None


def _policy(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        policy = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"invalid JSON: {error}", param_hint="--policy") from error
    if not isinstance(policy, dict):
        raise typer.BadParameter("expected a JSON object", param_hint="--policy")
    return policy
