"""The rules of changes by hand, without a store."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas.memory_types.model import FieldType, FieldValue, MemoryType
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.memories.direct_changes import carried_out, read_changes
from runekeep_server.protocol.api_error import ApiError
from runekeep_storage.records import Memory
from tests.support.changes import change, put, remove

REGISTRY = Registry.load()
TEA = "viking://user/ann/memories/preferences/Tea.md"
VALUES: dict[FieldType, st.SearchStrategy[FieldValue]] = {
    FieldType.STRING: st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
    FieldType.INT64: st.integers(-(2**63), 2**63 - 1),
    FieldType.FLOAT32: st.floats(width=32, allow_nan=False, allow_infinity=False),
    FieldType.BOOL: st.booleans(),
}
NAME = st.text(st.characters(categories=["L", "N"], max_codepoint=0x2FFF), min_size=1, max_size=20)


def values(type: MemoryType) -> st.SearchStrategy[dict[str, FieldValue]]:
    """Fields that the type takes, all of its own rules kept."""
    fields: dict[str, st.SearchStrategy[FieldValue]] = {}
    for field in type.fields:
        if field.choices:
            fields[field.name] = st.sampled_from(field.choices)
        elif not field.required_headings:
            fields[field.name] = VALUES[field.type]
    keys = {name: NAME for name in type.key_fields}
    others = {name: strategy for name, strategy in fields.items() if name not in keys}
    return st.fixed_dictionaries(keys, optional=others)  # type: ignore[arg-type]  # keys of two kinds


def stored(fields: dict[str, Any], version: int = 1, memory_type: str = "preferences", uri: str = TEA) -> Memory:
    return Memory(
        uri=uri,
        version=version,
        memory_type=memory_type,
        peer_id="",
        fields=json.dumps(fields),
        content="",
        abstract="",
        overview="",
        sources='[{"session": "s", "message_id": "m", "sequence": 1}]',
        extractor="{}",
        deleted=False,
        rev_from=1,
        rev_to=0,
        created_at=1,
        updated_at=1,
    )


@given(st.data())
def test_what_is_put_is_what_is_there(data: st.DataObject) -> None:
    type = data.draw(st.sampled_from(list(REGISTRY)))
    fields = data.draw(values(type))
    (made,) = read_changes(REGISTRY, "ann", [put(type.name, **fields)])
    draft = carried_out(made, REGISTRY, None, 0)
    assert draft.fields is not None
    for field in type.fields:
        there = draft.fields[field.name]
        if field.name in type.key_fields:
            assert there
        else:
            assert there == fields.get(field.name, field.zero)
    assert set(draft.fields) == {field.name for field in type.fields}

    # And put once more, on the version that it made, it changes nothing.
    current = stored(draft.fields, memory_type=type.name, uri=made.uri)
    if type.mergeable:
        (again,) = read_changes(REGISTRY, "ann", [put(type.name, 1, **draft.fields)])
        assert again.uri == made.uri
        assert not carried_out(again, REGISTRY, current, 1).changed


@given(before=values(REGISTRY["tools"]), after=values(REGISTRY["tools"]))
def test_nothing_of_a_memory_that_is_replaced_stays(before: dict[str, Any], after: dict[str, Any]) -> None:
    after["tool_name"] = before["tool_name"]
    (first,) = read_changes(REGISTRY, "ann", [put("tools", abstract="old", **before)])
    there = carried_out(first, REGISTRY, None, 0)
    assert there.fields is not None
    (fresh,) = read_changes(REGISTRY, "ann", [put("tools", **after)])
    (over,) = read_changes(REGISTRY, "ann", [put("tools", 1, **after)])
    replaced = carried_out(over, REGISTRY, stored(there.fields, memory_type="tools", uri=over.uri), 1)
    assert replaced.fields == carried_out(fresh, REGISTRY, None, 0).fields and not replaced.sources


def test_views_may_come_with_the_fields_and_not_with_two_texts() -> None:
    (made,) = read_changes(REGISTRY, "ann", [put("preferences", topic="Tea", abstract="a")])
    draft = carried_out(made, REGISTRY, None, 0)
    assert draft.fields is not None and draft.fields["abstract"] == "a"
    both = put("preferences", topic="Tea", abstract="a")
    both.put.fields["abstract"].string_value = "b"
    with pytest.raises(ApiError, match="two texts"):
        read_changes(REGISTRY, "ann", [both])


@pytest.mark.parametrize("given_uri", [TEA, "viking://user/memories/preferences/Tea.md", "viking://agent/x" + TEA[17:]])
def test_one_memory_is_known_by_all_its_names(given_uri: str) -> None:
    with pytest.raises(ApiError, match="same memory as changes"):
        read_changes(REGISTRY, "ann", [put("preferences", topic=" Tea "), remove(given_uri, 1)])


def test_an_edit_keeps_where_the_rest_came_from_and_a_delete_does_not() -> None:
    current = stored({"topic": "Tea", "content": "one two", "abstract": "One and two"})
    edited, deleted = (
        carried_out(read_changes(REGISTRY, "ann", [one])[0], REGISTRY, current, 4)
        for one in (change(TEA, 1, content=[("one", "1")]), remove(TEA, 1))
    )
    assert edited.fields == {"topic": "Tea", "content": "1 two"} and edited.sources
    assert deleted.fields is None and not deleted.sources and deleted.newest_version == 4


def test_wrong_fields_are_told_before_what_may_not_be_written() -> None:
    wrong = [remove("viking://user/skills/x.md", 1), put("nothing", content="x")]
    with pytest.raises(ApiError) as caught:
        read_changes(REGISTRY, "ann", wrong)
    assert [one.field for one in caught.value.field_violations] == ["changes[1].put.memory_type"]


def test_a_mutation_without_a_change_does_not_get_here() -> None:
    from runekeep_server.protocol.validation import validate_message

    with pytest.raises(ApiError):
        validate_message(pb.WriteMemoriesRequest(changes=[pb.MemoryMutation(base_version=1)]))
