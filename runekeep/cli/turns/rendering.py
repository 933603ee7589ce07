"""Turns and their signals as text."""

import json
from typing import TYPE_CHECKING

from runekeep.cli.common.formats import format_minute

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from runekeep.client.turns.results import Turn, TurnFingerprint, TurnSignal, TurnSummary

_KINDS = ("assertions", "exceptions", "facts", "assistant_signals")


_STYLES = {"assertions": "green", "exceptions": "red", "facts": "blue", "assistant_signals": "magenta"}


def render_turn(turn: "Turn") -> "Tree":
    from rich.text import Text
    from rich.tree import Tree

    head = Text.assemble((turn.turn_id, "bold cyan"), (f"  {format_minute(turn.start_time)}", "dim"))
    if turn.messages:
        first, last = turn.messages.start_sequence, turn.messages.end_sequence
        head.append(f"  messages {first} to {last}", style="dim")
    tree = Tree(head, guide_style="dim")
    fingerprint, summary = turn.fingerprint, turn.summary
    if fingerprint:
        _add_fingerprint(tree, fingerprint)
    if summary:
        _add_summary(tree, summary)
    if not fingerprint and not summary:
        tree.add(Text("no fingerprint yet; `runekeep turn submit` stores one", style="dim"))
    return tree


def render_signal(signal: "TurnSignal") -> "Text":
    """Returns a signal as `key = value (severity, scope=x, applies_to=y)`."""
    from rich.text import Text

    value = signal.value if isinstance(signal.value, str) else json.dumps(signal.value, ensure_ascii=False)
    strength: list[str] = [signal.severity or ""]
    strength += [f"{name}={given}" for name in ("scope", "applies_to") if (given := getattr(signal, name))]
    return Text.assemble((signal.key, "bold"), f" = {value} ", (f"({', '.join(strength)})", "dim"))


def _add_fingerprint(tree: "Tree", fingerprint: "TurnFingerprint") -> None:
    from rich.text import Text

    if fingerprint.conversation_title:
        tree.add(Text.assemble(("title  ", "dim"), fingerprint.conversation_title))
    tree.add(Text.assemble(("objective  ", "dim"), fingerprint.objective or "not known"))
    if fingerprint.topics:
        tree.add(Text.assemble(("topics  ", "dim"), ", ".join(fingerprint.topics)))
    for kind in _KINDS:
        signals: list[TurnSignal] = getattr(fingerprint, kind)
        if signals:
            branch = tree.add(Text(kind.replace("_", " "), style=_STYLES[kind]))
            for signal in signals:
                branch.add(render_signal(signal))
    for query in fingerprint.ctx_retrieval_queries:
        where = f" in what the {query.target.replace('_', ' ')} said" if query.target else ""
        tree.add(Text.assemble(("searched  ", "dim"), query.query, (where, "dim")))


def _add_summary(tree: "Tree", summary: "TurnSummary") -> None:
    from rich.text import Text

    branch = tree.add(Text("summary", style="yellow"))
    for name, value in summary.to_dict().items():
        text = "; ".join(value) if isinstance(value, list) else str(value)
        if text:
            branch.add(Text.assemble((f"{name.replace('_', ' ')}  ", "dim"), text))


def summarize_signals(fingerprint: "TurnFingerprint | None") -> str:
    """Returns how many assertions, exceptions, facts and assistant signals there are, such as `2A 1E 3F 1S`."""
    if fingerprint is None:
        return "no fingerprint"
    counts = zip("AEFS", (len(getattr(fingerprint, kind)) for kind in _KINDS), strict=True)
    return " ".join(f"{count}{letter}" for letter, count in counts if count) or "no signals"
