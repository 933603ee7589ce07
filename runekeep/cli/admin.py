"""Commands of operators: keys, accounts, the audit log, the state of a server."""

import re
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runekeep.cli.options import operating
from runekeep.cli.output import Output, minute

if TYPE_CHECKING:
    from runekeep.client.admin_results import Account, ApiKey, NewApiKey
    from runekeep.client.face import Admin

app = typer.Typer(no_args_is_help=True, help="What operators do: keys, accounts, the audit log, the server's state.")
keys_app = typer.Typer(no_args_is_help=True, help="API keys.")
accounts_app = typer.Typer(no_args_is_help=True, help="Accounts and their limits.")
app.add_typer(keys_app, name="key")
app.add_typer(accounts_app, name="account")

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN = "A number and s, m, h or d, such as 90d."
_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]

KeyId = Annotated[str, typer.Argument(metavar="KEY", help="Its id, as `runekeep admin key list` shows it.")]
Account_ = Annotated[str, typer.Option("--account", metavar="ID", help="Account that it is for.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="At most this many.")]


@keys_app.command()
@operating
def create(
    admin: "Admin",
    output: Output,
    scope: Annotated[str, typer.Option("--scope", metavar="SCOPE", help="user, account, admin or worker.")],
    account: Account_ = "",
    user: Annotated[str, typer.Option("--user", metavar="ID", help="User that it is for.")] = "",
    label: Annotated[str, typer.Option("--label", metavar="TEXT", help="What it is for.")] = "",
    expires_in: Annotated[
        str, typer.Option("--expires-in", metavar="SPAN", help=f"{_SPAN} Left out: it does not expire.")
    ] = "",
    accounts: Annotated[
        list[str] | None,
        typer.Option(
            "--jobs-of",
            metavar="ID",
            help="Of the scope worker: an account whose jobs it gets; may be repeated. Left out: all.",
        ),
    ] = None,
) -> None:
    """Make a key. Its secret is shown this once."""
    lifetime = _seconds(expires_in, "--expires-in") if expires_in else None
    # The client says which words there are.
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
@operating
def list_keys(
    admin: "Admin",
    output: Output,
    account: Annotated[str, typer.Option("--account", metavar="ID", help="Only those of this account.")] = "",
    every: Annotated[
        bool, typer.Option("--include-ended", help="Those too that were revoked or have expired.")
    ] = False,
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
            (key["key_id"], key["scope"], _whose(key), key["label"], _day(key["last_use_time"]), _state(key))
            for key in found
        ),
        "No keys.",
        whole="key",
    )


@keys_app.command()
@operating
def rotate(
    admin: "Admin",
    output: Output,
    key: KeyId,
    grace: Annotated[
        str, typer.Option("--grace", metavar="SPAN", help=f"How long the old secret is still taken. {_SPAN}")
    ] = "0s",
) -> None:
    """Give a key another secret, which is shown this once."""
    _show_secret(output, admin.rotate_key(key, grace=_seconds(grace, "--grace")))


@keys_app.command()
@operating
def revoke(admin: "Admin", output: Output, key: KeyId) -> None:
    """End a key for good, and the streams that are open with it."""
    revoked = admin.revoke_key(key)
    if output.as_json:
        output.json(revoked)
        return
    output.say(f"Revoked {revoked['key_id']} ({_whose(revoked)}), {minute(revoked['revoke_time'])}.")


@accounts_app.command("list")
@operating
def list_accounts(admin: "Admin", output: Output, limit: Limit = 200) -> None:
    """List accounts with what they have stored."""
    found = list(islice(admin.accounts(), limit))
    if output.as_json:
        output.json({"accounts": found})
        return
    counts = ("users", "sessions", "messages", "memories", "bytes")
    output.rows(
        ("account", *counts, "own limits"),
        ((one["account"], *_usage(one), ", ".join(_limits(one))) for one in found),
        "No accounts.",
        whole="account",
        numbers=counts,
    )


@accounts_app.command()
@operating
def limits(
    admin: "Admin",
    output: Output,
    account: Annotated[str, typer.Argument(metavar="ACCOUNT", help="Its name.")],
    calls_per_second: Annotated[float | None, typer.Option("--calls-per-second", help="On average; 0: any.")] = None,
    concurrent_calls: Annotated[int | None, typer.Option("--concurrent-calls", help="Under way; 0: any.")] = None,
    streams: Annotated[int | None, typer.Option("--streams", help="Open at a time; 0: any.")] = None,
    stored_bytes: Annotated[int | None, typer.Option("--stored-bytes", help="Stored; 0: any.")] = None,
    daily_tokens: Annotated[int | None, typer.Option("--daily-tokens", help="Of models, a day; 0: any.")] = None,
) -> None:
    """Set all limits of an account; those that are left out are those of the server's settings."""
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
    output.say(f"{changed['account']}: {', '.join(_limits(changed)) or 'the limits of the settings'}.")


@app.command()
@operating
def audit(
    admin: "Admin",
    output: Output,
    account: Annotated[str, typer.Option("--account", metavar="ID", help="Only about this account.")] = "",
    actor: Annotated[
        str, typer.Option("--actor", metavar="WHO", help="Only of this one: key:ID, certificate:NAME, proxy.")
    ] = "",
    since: Annotated[
        datetime | None, typer.Option("--since", metavar="TIME", help="From this local time on.", formats=_TIMES)
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", metavar="TIME", help="Before this local time.", formats=_TIMES)
    ] = None,
    limit: Limit = 50,
) -> None:
    """Show administrative and destructive calls, newest first."""
    events = admin.audit_events(account, actor=actor, start_time=since, end_time=until)
    found = list(islice(events, limit))
    if output.as_json:
        output.json({"events": found})
        return
    # No table: of seven columns none would have room for its texts.
    for event in found:
        of = f"{event['account']}/{event['user']}" if event["user"] else event["account"]
        code = event["code"] or "not ended"
        output.say(f"{minute(event['create_time'])}  {code:<18} {event['method']}")
        about = " ".join(dict.fromkeys(filter(None, (of, event["subject"]))))
        output.say(f"    by {event['actor']} from {event['peer']}" + (f", about {about}" if about else ""))
    if not found:
        output.say("No such calls.", "dim")


@app.command()
@operating
def status(admin: "Admin", output: Output) -> None:
    """Show how the server, and what it depends on, are doing."""
    found = admin.status()
    if output.as_json:
        output.json(found)
        return
    lag = found["index_lag"]
    output.say(
        f"runekeep {found['version']}, up since {minute(found['start_time'])}, identity: {found['identity_mode']}"
    )
    output.say(f"store at {found['store_revision'] or '?'}, workers on this server: {found['workers']}")
    if lag is not None:
        output.say(f"the first archived message that cannot be found yet has waited for {lag:.0f} s", "yellow")
    output.rows(
        ("part", "kind", "answers", "in ms", "problem"),
        (
            (
                part["name"],
                part["kind"],
                "yes" if part["available"] else "no",
                "" if part["round_trip"] is None else f"{part['round_trip'] * 1000:.1f}",
                part["problem"],
            )
            for part in found["dependencies"]
        ),
        "",
        numbers=("in ms",),
    )
    output.rows(
        ("stored data", "checked", "how", "problem"),
        (
            (check["name"], minute(check["end_time"]) or "not yet", check["extent"], check["problem"])
            for check in found["data_checks"]
        ),
        "",
    )
    output.rows(
        ("jobs", "state", "count", "oldest"),
        (
            (jobs["kind"], jobs["state"], f"{jobs['jobs']:,}", minute(jobs["oldest_time"]))
            for jobs in found["jobs"]
            if jobs["jobs"]
        ),
        "No open jobs.",
        numbers=("count",),
    )


def _seconds(span: str, option: str) -> float:
    match = re.fullmatch(r"(\d+)([smhd])", span)
    if match is None:
        raise typer.BadParameter(_SPAN, param_hint=option)
    return float(int(match[1]) * _UNITS[match[2]])


def _show_secret(output: Output, made: "NewApiKey") -> None:
    if output.as_json:
        output.json(made)
        return
    key = made["key"]
    output.say(f"Key {key['key_id']} ({_whose(key)}):")
    output.say(made["secret"], "bold")
    output.say("Keep it now: the server has only its hash, and nobody can show it again.", "yellow")
    if key["previous_expire_time"]:
        output.say(f"The secret before it is taken until {minute(key['previous_expire_time'])}.")


def _whose(key: "ApiKey") -> str:
    names = [key["account"], key["user"]]
    if key["accounts"]:
        return f"workers of {', '.join(key['accounts'])}"
    return "/".join(filter(None, names)) or {"admin": "operators", "worker": "workers"}.get(key["scope"], "")


def _state(key: "ApiKey") -> str:
    if key["revoke_time"]:
        return f"revoked {_day(key['revoke_time'])}"
    expires = key["expire_time"]
    if not expires:
        return "good"
    return f"expires {_day(expires)}" if datetime.fromisoformat(expires) > datetime.now().astimezone() else "expired"


def _day(time: str | None) -> str:
    return time[:10] if time else ""


def _usage(account: "Account") -> tuple[str, ...]:
    usage: Any = account["usage"]
    if not usage or not usage["count_time"]:
        return ("",) * 5
    return tuple(f"{usage[name]:,}" for name in ("users", "sessions", "messages", "memories", "stored_bytes"))


def _limits(account: "Account") -> list[str]:
    own: Any = account["limits"] or {}
    return [f"{name.replace('_', ' ')} {value:,}" for name, value in own.items() if value is not None]
