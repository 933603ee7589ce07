"""Options by which commands choose among memories and passages."""

from datetime import datetime
from typing import Annotated, Literal, cast

import typer

Target = Annotated[str, typer.Option("--target", metavar="URI", help="Only below this URI.")]
Types = Annotated[list[str] | None, typer.Option("--type", help="Only this type; may repeat.")]
Kind = Annotated[str, typer.Option("--kind", help="memory or passage; left out: both.")]
Threshold = Annotated[float | None, typer.Option("--threshold", help="Lowest score.")]
Peers = Annotated[list[str] | None, typer.Option("--peer", help="About or by this peer, '' for the user; may repeat.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Carries this tag; may repeat, for all.")]
Since = Annotated[str, typer.Option("--since", metavar="TIME", help="Happened then or later.")]
Until = Annotated[str, typer.Option("--until", metavar="TIME", help="Happened before.")]
MinRevision = Annotated[int, typer.Option("--min-revision", min=0, help="Wait until this can be found.")]


def kinds_of(kind: str) -> list[Literal["memory", "passage"]]:
    """What --kind names."""
    if kind not in ("", "memory", "passage"):
        raise typer.BadParameter("it is memory or passage", param_hint="--kind")
    return [cast('Literal["memory", "passage"]', kind)] if kind else []


def time_of(text: str, name: str) -> datetime | None:
    """What the option of that name says; None for nothing."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("it is a day such as 2026-05-31, or a time", param_hint=name) from None
