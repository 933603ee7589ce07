"""The summary of an archive from a model's answer."""

from extractor.anthropic_engine.answer import SummaryAnswer
from extractor.archive_summary import ArchiveSummary
from runekeep.v1 import common_pb2


def render_summary(answer: SummaryAnswer | None) -> common_pb2.Summary | None:
    """L0 and L1 of the archive; None when the model said nothing for them."""
    if answer is None or not any(
        text.strip() for text in (answer.topic, answer.intent, answer.result, answer.primary_request, *answer.analysis)
    ):
        return None
    return ArchiveSummary(
        topic=answer.topic,
        intent=answer.intent,
        result=answer.result,
        status=answer.status,
        analysis=answer.analysis,
        primary_request=answer.primary_request,
        key_concepts=answer.key_concepts,
        pending_tasks=answer.pending_tasks,
    ).rendered()
