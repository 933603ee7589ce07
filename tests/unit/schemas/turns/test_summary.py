from hypothesis import given

from runekeep_schemas.turns.summary import LISTS, TEXTS, Summary, fill
from tests.unit.schemas.turns.strategies import summaries


@given(summaries)
def test_the_stored_form_gives_back_the_same(summary: Summary) -> None:
    text = summary.to_text()
    assert Summary.from_text(text) == summary
    assert bool(text) is not summary.is_empty
    assert "\n" not in text


def test_the_stored_form() -> None:
    assert Summary(done=("a", "b"), notes="n\n").to_text() == '{"done":["a","b"],"notes":"n\\n"}'
    assert Summary().to_text() == ""


@given(summaries, summaries)
def test_what_is_extracted_never_changes_what_is_there(there: Summary, found: Summary) -> None:
    filled = fill(there, found)
    for name in (*TEXTS, *LISTS):
        assert getattr(filled, name) == (getattr(there, name) or getattr(found, name))
    assert fill(filled, found) == filled
