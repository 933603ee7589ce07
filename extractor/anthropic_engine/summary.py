"""The summary of an archive, in the sections that every summary has."""

from collections.abc import Sequence

from extractor.anthropic_engine.answer import SummaryAnswer
from runekeep.v1 import common_pb2


def render_summary(answer: SummaryAnswer | None) -> common_pb2.Summary | None:
    """L0 and L1 of the archive; None when the model said nothing for them. Headings stay English, as the format has it.

    L1 has the same five parts whatever the conversation, so that a reader finds them; a part without content says so.
    """
    if answer is None:
        return None
    head = f"{_line(answer.topic)}: {_line(answer.intent)} | {_line(answer.result)} | {_line(answer.status)}"
    spoken = any((answer.topic, answer.intent, answer.result, answer.primary_request, answer.abstract))
    if not spoken and not answer.analysis:
        return None
    sections = [
        "# Session Summary",
        f"**One-line overview**: {head}",
        "## Analysis",
        _numbered(answer.analysis),
        "## Primary Request and Intent",
        answer.primary_request.strip() or _line(answer.intent),
        "## Key Concepts",
        _listed(answer.key_concepts),
        "## Pending Tasks",
        _listed(answer.pending_tasks),
    ]
    abstract = " ".join(answer.abstract.split()) or head
    return common_pb2.Summary(abstract=abstract, overview="\n\n".join(sections) + "\n")


def _line(text: str) -> str:
    return " ".join(text.split()) or "none"


def _numbered(lines: Sequence[str]) -> str:
    return "\n".join(f"{number}. {_line(line)}" for number, line in enumerate(lines, 1)) or "none"


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_line(line)}" for line in lines) or "none"
