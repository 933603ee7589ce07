"""Texts as HTML: whatever a text is, it runs nowhere, and a comparison shows all that differs."""

from hypothesis import given
from hypothesis import strategies as st

from runekeep.studio.rendering.attribution import message_of_line
from runekeep.studio.rendering.differences import CONTEXT_LINES, side_by_side
from runekeep.studio.rendering.markdown import markdown
from runekeep.v1 import common_pb2
from tests.support.studio import what_could_run

_PIECES = st.sampled_from(
    [
        *(
            "<script>",
            "</script>",
            "<img src=x onerror=y>",
            "<svg/onload=y>",
            "<a href='javascript:y'>",
            "<style>",
            "<b",
        ),
        *(
            "[a](javascript:y)",
            "![a](https://evil.example)",
            "[a]: data:text/html,y",
            "<javascript:y>",
            "[a](viking://x)",
        ),
        *(
            "[a](/logout)",
            "# ",
            "> ",
            "- ",
            "```",
            "`",
            "|a|b|\n|-|-|\n",
            "\n",
            "\n\n",
            "&lt;",
            '"',
            "'",
            "x",
            "\x00",
            "\\",
        ),
    ]
)


@given(st.lists(_PIECES, max_size=20).map("".join))
def test_markdown_runs_nowhere_and_leads_to_no_page_of_the_studio_that_changes_anything(text: str) -> None:
    rendered = str(markdown(text))
    assert what_could_run(rendered) == []
    assert 'href="/' not in rendered.replace('href="/memory?uri=', "")


_LINES = st.lists(st.sampled_from(["a", "b", "c"]), max_size=30)


@given(_LINES, _LINES)
def test_a_comparison_has_every_line_of_both_texts_in_order(before: list[str], after: list[str]) -> None:
    rows = side_by_side("\n".join(before), "\n".join(after))
    for lines, numbers in (
        (before, [(row.before_number, row.before) for row in rows if row.before_number]),
        (after, [(row.after_number, row.after) for row in rows if row.after_number]),
    ):
        assert [lines[number - 1] for number, _ in numbers] == [line for _, line in numbers]
        assert [number for number, _ in numbers] == sorted({number for number, _ in numbers})
        assert len(numbers) + sum(row.skipped for row in rows) == len(lines)
    # Only equal lines are left out, and none next to a change.
    changed = [place for place, row in enumerate(rows) if row.kind in ("changed", "added", "removed")]
    for place, row in enumerate(rows):
        if row.kind == "gap":
            assert all(abs(place - other) > CONTEXT_LINES for other in changed)


def test_a_line_is_traced_to_the_message_that_shares_most_words() -> None:
    messages = {
        name: common_pb2.Message(id=name, sequence=number, parts=[common_pb2.Part(text=common_pb2.TextPart(text=text))])
        for number, (name, text) in enumerate({"m1": "We moved to Ghent", "m2": "The kiln arrives in March"}.items(), 1)
    }
    kiln = message_of_line("- The new kiln arrives on 20 March", messages, messages)
    assert kiln is not None and kiln.id == "m2"
    assert message_of_line("- Likes tea", messages, messages) is None
    assert message_of_line("anything", ["m1"], messages) == messages["m1"]
    assert message_of_line("anything", ["m1", "unknown"], messages) is None
