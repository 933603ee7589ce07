"""One text has one vector, whatever the processor: vectors of fixed texts, computed here, against stored ones.

`make test-processors` runs the short texts on emulated processors without AVX-512 and without AVX2, where a token takes
half a second. After a change of the arithmetic, `python -m tests.unit.storage.embedders.test_reference_vectors`
rewrites the stored vectors.
"""

import base64
import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest

from runekeep_storage.embedders import minilm
from runekeep_storage.embedders.vectors import cosine

STORED = Path(__file__).parent / "data" / "reference_vectors.json"
MIN_COSINE = 0.9999
MAX_LIKENESS_DIFFERENCE = 0.0005

SHORT_CHARACTERS = 50

LONG = "Drinks only green tea, and no coffee. "
TEXTS = (
    "Tea: Drinks only green tea, and no coffee.",
    "Hot drinks: " + LONG * 120,
    "Hot drinks: Prefers green tea.",
    "tea",
    "",
    "Moved from Porto to Lisbon in February 2026, because of the new job at the harbour.",
    "1,204.50 EUR since 2026-03-07; see ticket #4411 and https://example.org/a?b=c",
    "def total(rows): return sum(row.amount for row in rows if row.paid)",
    "Они живут у моря. 我喜欢喝绿茶。 أحب القهوة",
    "🙂🙂🙂",
    " ".join(f"Item {number} of the list says nothing that another does not say." for number in range(40)),
)


def vectors(texts: Sequence[str]) -> list[bytes]:
    model = minilm.MiniLm(1)
    return [model.run([text])[0] for text in texts]


@pytest.mark.parametrize("longest", [pytest.param(SHORT_CHARACTERS, id="short"), pytest.param(10_000, id="all")])
def test_vectors_are_those_of_every_other_processor(longest: int) -> None:
    stored = [base64.b64decode(vector) for vector in json.loads(STORED.read_text("utf-8"))]
    before = {text: vector for text, vector in zip(TEXTS, stored, strict=True) if len(text) <= longest}
    now = dict(zip(before, vectors(list(before)), strict=True))

    for text in before:
        assert cosine(before[text], now[text]) >= MIN_COSINE, text[:80]
    for first, second in combinations(before, 2):
        difference = cosine(before[first], before[second]) - cosine(now[first], now[second])
        assert abs(difference) <= MAX_LIKENESS_DIFFERENCE, (first[:80], second[:80])


if __name__ == "__main__":
    coded = [base64.b64encode(vector).decode() for vector in vectors(TEXTS)]
    STORED.write_text(json.dumps(coded, indent=1) + "\n", "utf-8")
