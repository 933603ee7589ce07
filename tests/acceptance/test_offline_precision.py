"""What the offline engine keeps of sentences that its rules were not made from. Figures only: no text is shown."""

from rich.progress import Progress

from tests.bench.offline.score import LABELLED, load, run

MIN_PRECISION = 0.8
MIN_RECALL = 0.47
"""Of all lines, also cases, ways of working and other languages, which the engine leaves to the passages."""
MIN_LINES = 200


async def test_of_what_is_kept_at_least_four_in_five_should_be():
    with Progress(disable=True) as progress:
        _, score = await run(load(LABELLED), progress)
    # Only numbers are compared, so that a failure shows no sentence.
    lines, precision, recall = score.overall.lines, score.overall.precision, score.overall.recall
    assert lines >= MIN_LINES
    assert precision is not None and precision >= MIN_PRECISION
    assert recall is not None and recall >= MIN_RECALL
