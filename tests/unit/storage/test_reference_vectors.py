"""One text has one vector, whatever the processor: vectors of fixed texts, computed here, against stored ones.

`make test-processors` runs this file on emulated processors without AVX-512 and without AVX2. This writes the stored
vectors anew, after a change of the arithmetic: `python -m tests.unit.storage.test_reference_vectors`.
"""

import base64
import json
from itertools import combinations
from pathlib import Path

from storage.embedders import minilm
from storage.embedders.vectors import cosine

STORED = Path(__file__).parent / "data" / "reference_vectors.json"
MIN_COSINE = 0.9999
MAX_LIKENESS_DIFFERENCE = 0.0005

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


def vectors() -> list[bytes]:
    model = minilm.MiniLm(1)
    return [model.run([text])[0] for text in TEXTS]


def test_vectors_are_those_of_every_other_processor() -> None:
    before = [base64.b64decode(vector) for vector in json.loads(STORED.read_text("utf-8"))]
    now = vectors()

    assert len(before) == len(now) == len(TEXTS)
    for text, one, other in zip(TEXTS, before, now, strict=True):
        assert cosine(one, other) >= MIN_COSINE, text[:80]
    for first, second in combinations(range(len(TEXTS)), 2):
        difference = cosine(before[first], before[second]) - cosine(now[first], now[second])
        assert abs(difference) <= MAX_LIKENESS_DIFFERENCE, (TEXTS[first][:80], TEXTS[second][:80])


if __name__ == "__main__":
    coded = [base64.b64encode(vector).decode() for vector in vectors()]
    STORED.write_text(json.dumps(coded, indent=1) + "\n", "utf-8")
