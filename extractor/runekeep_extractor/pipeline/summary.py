"""Renders the summary of an archive from a model's answer."""

from runekeep.v1 import common_pb2
from runekeep_extractor.answers.answer import SummaryAnswer
from runekeep_extractor.engine.archive_summary import ArchiveSummary


def render_summary(answer: SummaryAnswer | None) -> common_pb2.Summary | None:
    """Returns L0 and L1 of the archive; None if the model gave no content for them."""
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
