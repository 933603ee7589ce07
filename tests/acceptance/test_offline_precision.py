"""What the offline engine keeps of sentences that its rules were not made from. Figures only: no text is shown."""

from rich.progress import Progress

from tests.bench.offline.score import LABELLED, load, run

LEAST_PRECISION = 0.8
LEAST_RECALL = 0.65
LEAST_LINES = 200


async def test_of_what_is_kept_at_least_four_in_five_should_be():
    with Progress(disable=True) as progress:
        _, score = await run(load(LABELLED), progress)
    # Only numbers are compared, so that a failure shows no sentence.
    lines, precision, recall = score.overall.lines, score.overall.precision, score.overall.recall
    assert lines >= LEAST_LINES
    assert precision is not None and precision >= LEAST_PRECISION
    assert recall is not None and recall >= LEAST_RECALL
