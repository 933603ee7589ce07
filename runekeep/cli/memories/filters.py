"""Options that select memories and passages."""

from datetime import datetime
from typing import Annotated, Literal, cast

import typer

Target = Annotated[str, typer.Option("--target", metavar="URI", help="Only below this URI.")]
Types = Annotated[list[str] | None, typer.Option("--type", help="Only memories of this type; may repeat.")]
Kind = Annotated[str, typer.Option("--kind", help="memory or passage; default: both.")]
Threshold = Annotated[float | None, typer.Option("--threshold", help="Minimum score.")]
MinRelevance = Annotated[
    float | None, typer.Option("--min-relevance", min=0.0, max=1.0, help="Minimum relevance, from 0 to 1.")
]
Peers = Annotated[
    list[str] | None, typer.Option("--peer", help="Only about or by this peer; '' is the user; may repeat.")
]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Only with this tag; several must all match.")]
Since = Annotated[str, typer.Option("--since", metavar="TIME", help="Only from this time on.")]
Until = Annotated[str, typer.Option("--until", metavar="TIME", help="Only before this time.")]
MinRevision = Annotated[int, typer.Option("--min-revision", min=0, help="Wait until this revision can be found.")]


def parse_kind(kind: str) -> list[Literal["memory", "passage"]]:
    """Returns the kinds that --kind selects; empty for both."""
    if kind not in ("", "memory", "passage"):
        raise typer.BadParameter("expected memory or passage", param_hint="--kind")
    return [cast('Literal["memory", "passage"]', kind)] if kind else []


def parse_time(text: str, name: str) -> datetime | None:
    """Returns the time that the option `name` gives; None if it is empty."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("expected a day such as 2026-05-31, or a time", param_hint=name) from None
