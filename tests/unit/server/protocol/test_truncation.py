"""Records that are too large for an answer: cut to size, with their names left as they are."""

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from runekeep.v1 import common_pb2, session_service_pb2, task_service_pb2
from runekeep.v1 import memory_service_pb2 as pb
from runekeep_server.protocol.truncation import shorten

LIMIT = 4000
TEXT = st.tuples(st.sampled_from(["a", "ß", "茶", "😀"]), st.integers(0, 5000)).map(lambda of: of[0] * of[1])


def memory(content: str, overview: str, fields: dict[str, str], sources: int, tags: list[str]) -> pb.Memory:
    return pb.Memory(
        uri="viking://user/anna/memories/preferences/Tea.md",
        version=7,
        content=content,
        overview=overview,
        fields={name: common_pb2.FieldValue(string_value=text) for name, text in fields.items()},
        sources=[pb.MessageSource(session="s", message_id=f"m{number}", sequence=number) for number in range(sources)],
        tags=tags,
    )


def message(texts: list[str], values: int, depth: int) -> common_pb2.Message:
    made = common_pb2.Message(id="m1", sequence=3)
    made.parts.extend(common_pb2.Part(text=common_pb2.TextPart(text=text)) for text in texts)
    value = made.parts.add().tool.input.fields["list"]
    for _ in range(depth):
        value = value.list_value.values.add()
    value.list_value.values.extend([value.list_value.values.add(number_value=1)] * values)
    return made


RECORD = st.one_of(
    st.builds(
        memory,
        TEXT,
        TEXT,
        st.dictionaries(st.sampled_from("abcdef"), TEXT),
        st.integers(0, 300),
        st.lists(TEXT, max_size=3),
    ),
    st.builds(message, st.lists(TEXT, max_size=5), st.integers(0, 5000), st.integers(0, 20)),
)


@given(RECORD)
def test_a_record_is_cut_to_size_and_says_so(record: Message) -> None:
    whole = type(record).FromString(record.SerializeToString())
    was_cut = shorten(record, LIMIT)
    assert was_cut == (whole.ByteSize() > LIMIT) == record.shortened  # type: ignore[attr-defined]  # of both kinds
    assert record.ByteSize() <= LIMIT
    if not was_cut:
        assert record == whole
    elif isinstance(record, pb.Memory):
        assert isinstance(whole, pb.Memory)
        assert (record.uri, record.version) == (whole.uri, whole.version)
        assert whole.content.startswith(record.content) and whole.overview.startswith(record.overview)
        assert all(
            whole.fields[name].string_value.startswith(record.fields[name].string_value) for name in record.fields
        )
        assert list(record.sources) == list(whole.sources)[: len(record.sources)]
    else:
        assert isinstance(record, common_pb2.Message) and isinstance(whole, common_pb2.Message)
        assert (record.id, record.sequence) == ("m1", 3)
        for part, before in zip(record.parts, whole.parts, strict=False):
            assert before.text.text.startswith(part.text.text)


def test_the_longest_texts_lose_the_most() -> None:
    record = message(["a" * 3000, "b" * 10, "c" * 3000, "d"], 1, 0)
    assert shorten(record, LIMIT)
    lengths = [len(part.text.text) for part in record.parts]
    assert lengths[1] == 10 and lengths[3] == 1 and len(record.parts) == 5
    assert sum(lengths) > LIMIT // 2


@pytest.mark.parametrize("limit", [10_000, 100_000])
def test_lists_of_many_lose_their_end(limit: int) -> None:
    entry = task_service_pb2.LeftOut(reason="too_large", message="m" * 300)
    task = task_service_pb2.Task(task_id="t", result=task_service_pb2.CommitResult(rejected=[entry] * 2000))
    assert shorten(task, limit) and task.shortened and task.ByteSize() <= limit
    assert len(task.result.rejected) >= 1 and all(one == entry for one in task.result.rejected)


def test_a_record_without_a_flag_is_cut_all_the_same() -> None:
    summary = session_service_pb2.Session(title="t", summary=common_pb2.Summary(overview="x" * 5000))
    assert shorten(summary, LIMIT) and summary.title == "t" and summary.ByteSize() <= LIMIT
