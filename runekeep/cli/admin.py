"""Commands of operators: keys, accounts, audit log, state of a server."""

import re
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.formats import format_day, format_minute
from runekeep.cli.common.options import admin_command
from runekeep.cli.common.output import Output
from runekeep.cli.common.suggestions import SuggestingGroup
from runekeep.cli.embedder_change import describe_change

if TYPE_CHECKING:
    from runekeep.client.admin import Account, Admin, ApiKey, NewApiKey

app = typer.Typer(no_args_is_help=True, help="Administration: keys, accounts, audit log, state of the server.")
keys_app = typer.Typer(no_args_is_help=True, help="API keys.")
accounts_app = typer.Typer(no_args_is_help=True, help="Accounts and their limits.")
app.add_typer(keys_app, name="key", cls=SuggestingGroup)
app.add_typer(accounts_app, name="account", cls=SuggestingGroup)

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN = "A number and s, m, h or d, such as 90d."
_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]

KeyId = Annotated[str, typer.Argument(metavar="KEY", help="Id, as `runekeep admin key list` prints it.")]
Account_ = Annotated[str, typer.Option("--account", metavar="ID", help="Account of the key.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Maximum number of entries.")]


@keys_app.command()
@admin_command
def create(
    admin: "Admin",
    output: Output,
    scope: Annotated[str, typer.Option("--scope", metavar="SCOPE", help="user, account, admin or worker.")],
    account: Account_ = "",
    user: Annotated[str, typer.Option("--user", metavar="ID", help="User of the key.")] = "",
    label: Annotated[str, typer.Option("--label", metavar="TEXT", help="Purpose of the key.")] = "",
    expires_in: Annotated[
        str, typer.Option("--expires-in", metavar="SPAN", help=f"{_SPAN} Default: it does not expire.")
    ] = "",
    accounts: Annotated[
        list[str] | None,
        typer.Option(
            "--jobs-of",
            metavar="ID",
            help="For the scope worker: only jobs of this account; may repeat. Default: all accounts.",
        ),
    ] = None,
) -> None:
    """Create a key. The command prints its secret; nobody can show it again."""
    lifetime = _parse_span(expires_in, "--expires-in") if expires_in else None
    # The client checks the word.
    made = admin.create_key(
        scope,  # type: ignore[arg-type]  # one of its words
        account=account,
        user=user,
        label=label,
        lifetime=lifetime,
        accounts=accounts or (),
    )
    _show_secret(output, made)


@keys_app.command("list")
@admin_command
def list_keys(
    admin: "Admin",
    output: Output,
    account: Annotated[str, typer.Option("--account", metavar="ID", help="Only keys of this account.")] = "",
    every: Annotated[bool, typer.Option("--include-ended", help="Include revoked and expired keys.")] = False,
    limit: Limit = 200,
) -> None:
    """List keys, newest first, without their secrets."""
    found = list(islice(admin.keys(account, include_ended=every), limit))
    if output.as_json:
        output.json({"keys": found})
        return
    output.rows(
        ("key", "scope", "for", "label", "last used", "state"),
        (
            (
                key.key_id,
                key.scope,
                _describe_owner(key),
                key.label,
                format_day(key.last_use_time),
                _describe_state(key),
            )
            for key in found
        ),
        "No keys.",
        whole="key",
    )


@keys_app.command()
@admin_command
def rotate(
    admin: "Admin",
    output: Output,
    key: KeyId,
    grace: Annotated[
        str, typer.Option("--grace", metavar="SPAN", help=f"How long the old secret stays valid. {_SPAN}")
    ] = "0s",
) -> None:
    """Give a key a new secret. The command prints it; nobody can show it again."""
    _show_secret(output, admin.rotate_key(key, grace=_parse_span(grace, "--grace")))


@keys_app.command()
@admin_command
def revoke(admin: "Admin", output: Output, key: KeyId) -> None:
    """Revoke a key for good, and end its open streams."""
    revoked = admin.revoke_key(key)
    if output.as_json:
        output.json(revoked)
        return
    output.say(f"Revoked {revoked.key_id} ({_describe_owner(revoked)}), {format_minute(revoked.revoke_time)}.")


@accounts_app.command("list")
@admin_command
def list_accounts(admin: "Admin", output: Output, limit: Limit = 200) -> None:
    """List accounts with their usage."""
    found = list(islice(admin.accounts(), limit))
    if output.as_json:
        output.json({"accounts": found})
        return
    counts = ("users", "sessions", "messages", "memories", "bytes")
    output.rows(
        ("account", *counts, "own limits"),
        ((one.account, *_format_usage(one), ", ".join(_format_limits(one))) for one in found),
        "No accounts.",
        whole="account",
        numbers=counts,
    )


@accounts_app.command()
@admin_command
def limits(
    admin: "Admin",
    output: Output,
    account: Annotated[str, typer.Argument(metavar="ACCOUNT", help="Name of the account.")],
    calls_per_second: Annotated[
        float | None, typer.Option("--calls-per-second", help="Average calls per second; 0: no limit.")
    ] = None,
    concurrent_calls: Annotated[
        int | None, typer.Option("--concurrent-calls", help="Calls at the same time; 0: no limit.")
    ] = None,
    streams: Annotated[int | None, typer.Option("--streams", help="Open streams; 0: no limit.")] = None,
    stored_bytes: Annotated[int | None, typer.Option("--stored-bytes", help="Stored bytes; 0: no limit.")] = None,
    daily_tokens: Annotated[
        int | None, typer.Option("--daily-tokens", help="Model tokens per day; 0: no limit.")
    ] = None,
) -> None:
    """Set all limits of an account. Limits that you leave out come from the server's settings."""
    changed = admin.set_limits(
        account,
        calls_per_second=calls_per_second,
        concurrent_calls=concurrent_calls,
        streams=streams,
        stored_bytes=stored_bytes,
        daily_tokens=daily_tokens,
    )
    if output.as_json:
        output.json(changed)
        return
    output.say(f"{changed.account}: {', '.join(_format_limits(changed)) or 'the limits of the settings'}.")


@app.command()
@admin_command
def audit(
    admin: "Admin",
    output: Output,
    account: Annotated[str, typer.Option("--account", metavar="ID", help="Only calls about this account.")] = "",
    actor: Annotated[
        str,
        typer.Option("--actor", metavar="WHO", help="Only calls of this caller: key:ID, certificate:NAME or proxy."),
    ] = "",
    since: Annotated[
        datetime | None, typer.Option("--since", metavar="TIME", help="Only from this local time on.", formats=_TIMES)
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", metavar="TIME", help="Only before this local time.", formats=_TIMES)
    ] = None,
    limit: Limit = 50,
) -> None:
    """Show administrative and destructive calls, newest first."""
    events = admin.audit_events(account, actor=actor, start_time=since, end_time=until)
    found = list(islice(events, limit))
    if output.as_json:
        output.json({"events": found})
        return
    # No table: seven columns would be too narrow for their texts.
    for event in found:
        of = f"{event.account}/{event.user}" if event.user else event.account
        code = event.code or "not ended"
        output.say(f"{format_minute(event.create_time)}  {code:<18} {event.method}")
        about = " ".join(dict.fromkeys(filter(None, (of, event.subject))))
        output.say(f"    by {event.actor} from {event.peer}" + (f", about {about}" if about else ""))
    if not found:
        output.say("No such calls.", "dim")


@app.command()
@admin_command
def status(admin: "Admin", output: Output) -> None:
    """Show the state of the server and of its dependencies."""
    found = admin.status()
    if output.as_json:
        output.json(found)
        return
    lag = found.index_lag
    since = format_minute(found.start_time)
    output.say(f"runekeep {found.version}, up since {since}, identity: {found.identity_mode}")
    output.say(f"store at {found.store_revision or '?'}, workers on this server: {found.workers}")
    for line in describe_change(found.embedder_change) if found.embedder_change else ():
        output.say(line)
    if lag is not None:
        output.say(f"the first archived message that cannot be found yet has waited for {lag:.0f} s", "yellow")
    output.rows(
        ("part", "kind", "answers", "in ms", "problem"),
        (
            (
                part.name,
                part.kind,
                "yes" if part.available else "no",
                "" if part.round_trip is None else f"{part.round_trip * 1000:.1f}",
                part.problem,
            )
            for part in found.dependencies
        ),
        "",
        numbers=("in ms",),
    )
    output.rows(
        ("stored data", "checked", "how", "problem"),
        (
            (check.name, format_minute(check.end_time) or "not yet", check.extent, check.problem)
            for check in found.data_checks
        ),
        "",
    )
    output.rows(
        ("jobs", "state", "count", "oldest"),
        (
            (jobs.kind, jobs.state, f"{jobs.jobs:,}", format_minute(jobs.oldest_time))
            for jobs in found.jobs
            if jobs.jobs
        ),
        "No open jobs.",
        numbers=("count",),
    )


def _parse_span(span: str, option: str) -> float:
    match = re.fullmatch(r"(\d+)([smhd])", span)
    if match is None:
        raise typer.BadParameter(_SPAN, param_hint=option)
    return float(int(match[1]) * _UNITS[match[2]])


def _show_secret(output: Output, made: "NewApiKey") -> None:
    if output.as_json:
        output.json(made)
        return
    key = made.key
    output.say(f"Key {key.key_id} ({_describe_owner(key)}):")
    output.say(made.secret, "bold")
    output.say("Store it now: the server keeps only its hash, and nobody can show it again.", "yellow")
    if key.previous_expire_time:
        output.say(f"The old secret is valid until {format_minute(key.previous_expire_time)}.")


def _describe_owner(key: "ApiKey") -> str:
    names = [key.account, key.user]
    if key.accounts:
        return f"workers of {', '.join(key.accounts)}"
    return "/".join(filter(None, names)) or {"admin": "operators", "worker": "workers"}.get(key.scope, "")


def _describe_state(key: "ApiKey") -> str:
    if key.revoke_time:
        return f"revoked {format_day(key.revoke_time)}"
    expires = key.expire_time
    if not expires:
        return "good"
    return f"expires {format_day(expires)}" if expires > datetime.now(UTC) else "expired"


def _format_usage(account: "Account") -> tuple[str, ...]:
    usage = account.usage
    if not usage or not usage.count_time:
        return ("",) * 5
    return tuple(f"{getattr(usage, name):,}" for name in ("users", "sessions", "messages", "memories", "stored_bytes"))


def _format_limits(account: "Account") -> list[str]:
    own = account.limits.to_dict().items() if account.limits else ()
    return [f"{name.replace('_', ' ')} {value:,}" for name, value in own if value is not None]
