"""How answers are read: forgivingly in form, never inventing and never losing count."""

import json
import math

import anthropic
import pytest

from runekeep.v1 import common_pb2, memory_service_pb2
from runekeep_extractor.answers.answer import WireAnswer, read_answer, wire_schema
from runekeep_extractor.answers.operations import Converter, as_answer, plain_value
from runekeep_extractor.answers.parse import Unreadable, find_object
from runekeep_extractor.pipeline.prefetch import queries
from runekeep_extractor.prompts.reads import tool_definitions
from runekeep_extractor.prompts.records import memory_line
from runekeep_extractor.providers.anthropic.messages import to_tool_param
from runekeep_schemas.type_files.registry import Registry
from tests.doubles.fixed_job import memory, message, wire_type
from tests.doubles.messages_api_rules import complaint

TYPES = [wire_type(one) for one in Registry.load()]
SENSOR = memory_service_pb2.MemoryType(
    name="sensor",
    filename_template="{name}.md",
    fields=[
        memory_service_pb2.MemoryField(name="name", type=memory_service_pb2.FIELD_TYPE_STRING),
        memory_service_pb2.MemoryField(name="count", type=memory_service_pb2.FIELD_TYPE_INT64),
        memory_service_pb2.MemoryField(name="level", type=memory_service_pb2.FIELD_TYPE_FLOAT32),
        memory_service_pb2.MemoryField(name="on", type=memory_service_pb2.FIELD_TYPE_BOOL),
    ],
)


def find_answer(text: str):
    return find_object(text, WireAnswer.model_fields).data


def write_of(fields: object, **rest: object) -> dict[str, object]:
    return {"write_operations": [{"memory_type": "sensor", "fields": fields, **rest}]}


def convert(data: dict[str, object], known: dict[str, str] | None = None):
    answer = read_answer(data)
    converter = Converter([*TYPES, SENSOR], known or {})
    return converter.operations(answer), answer.dropped + converter.dropped


@pytest.mark.parametrize(
    "text",
    [
        '{"reasoning": "r", "write_operations": []}',
        'Sure {as asked}:\n```json\n{"reasoning": "r", "write_operations": []}\n```\nDone {really}.',
        '{"answer": {"reasoning": "r", "write_operations": []}}',
        "{'reasoning': 'r', 'write_operations': [],}",
        '{"reasoning": "r", "write_operations": [',
        'text {"reasoning": "r" "write_operations": [] } more text',
        '{"reasoning": "a "quoted" word", "write_operations": []}',
        '{"reasoning": "two\nlines", "write_operations": []}',
    ],
)
def test_json_is_found_and_mended(text):
    found = find_answer(text)
    assert found["write_operations"] == []
    assert isinstance(found["reasoning"], str)


@pytest.mark.parametrize(
    "text", ["", "  \n", "none", "{", "{}", "[1, 2]", '{"other": 1}', "[" * 100_000, "{" * 100_000]
)
def test_what_holds_no_answer_is_unreadable(text):
    with pytest.raises(Unreadable):
        find_answer(text)


def test_half_a_surrogate_pair_does_not_break_the_contract():
    found = find_answer('{"write_operations": [{"memory_type": "sensor", "fields": {"name": "a\\ud83d"}}]}')
    operations, dropped = convert(found)
    assert operations[0].write.fields["name"].string_value == "a?"
    assert dropped == 0


def test_values_take_the_types_of_their_fields():
    given = {"name": 7, "count": "12", "level": "2.5", "on": "yes"}
    operations, dropped = convert(write_of(given))
    fields = operations[0].write.fields
    assert fields["name"] == common_pb2.FieldValue(string_value="7")
    assert fields["count"] == common_pb2.FieldValue(int64_value=12)
    assert fields["level"] == common_pb2.FieldValue(float32_value=2.5)
    assert fields["on"] == common_pb2.FieldValue(bool_value=True)
    assert dropped == 0


def test_large_integers_stay_exact():
    operations, _ = convert(json.loads(json.dumps(write_of([{"name": "count", "value": 2**63 - 1}]))))
    assert operations[0].write.fields["count"].int64_value == 2**63 - 1


@pytest.mark.parametrize("value", [2.5, 2**63, "many", True, [1], {"a": 1}])
def test_a_value_that_does_not_fit_costs_only_its_field(value):
    fields = [{"name": "name", "value": "n"}, {"name": "count", "value": value}]
    operations, dropped = convert(write_of(fields))
    assert list(operations[0].write.fields) == ["name"]
    assert dropped == 1


@pytest.mark.parametrize("value", [math.inf, 1e39, "nan"])
def test_numbers_are_finite(value):
    operations, dropped = convert(write_of([{"name": "level", "value": value}]))
    assert operations == []
    assert dropped == 2, "the field, and with it the operation"


def test_bad_items_are_dropped_and_counted_one_by_one():
    data = {
        "write_operations": [
            {"memory_type": "sensor", "fields": [{"name": "name", "value": "kept"}, {"value": "nameless"}]},
            {"memory_type": "unheard_of", "fields": [{"name": "name", "value": "x"}]},
            {"memory_type": "sensor", "fields": [{"name": "unheard_of", "value": "x"}]},
            "no object",
        ],
        "edit_operations": [{"uri": "viking://user/a/memories/x.md", "patches": []}, {"patches": 3}],
        "delete_operations": [{"reason": "no uri"}, {"uri": ""}, {"uri": "viking://user/a/memories/y.md"}],
        "unheard_of": 1,
    }
    operations, dropped = convert(data)
    assert [one.WhichOneof("operation") for one in operations] == ["delete", "write"]
    assert list(operations[1].write.fields) == ["name"]
    # A field, a type, a field and the operation it leaves empty, a text, the edit without and the one with a bad
    # patch and no URI, two deletes without URI.
    assert dropped == 1 + 1 + 2 + 1 + 1 + 2 + 2


def test_an_operation_with_unreadable_ranges_is_not_routed_elsewhere():
    operations, dropped = convert(write_of({"name": "a"}, ranges=[{"start": "the beginning"}]))
    assert operations == []
    assert dropped == 1


def test_ranges_are_read_in_any_form_and_joined():
    operations, _ = convert(
        write_of({"name": "a"}, ranges=[7, [3, 2], {"start": 4}, {"start": "10", "end": 12}, [5, 6]])
    )
    assert [(one.start_sequence, one.end_sequence) for one in operations[0].ranges] == [(2, 7), (10, 12)]


def test_null_says_nothing():
    operations, dropped = convert(write_of({"name": "a", "count": None}, peer_id=None, ranges=None, abstract=None))
    assert list(operations[0].write.fields) == ["name"]
    assert operations[0].peer_id == ""
    assert dropped == 0


def test_views_given_among_the_fields_are_views():
    operations, dropped = convert(write_of({"name": "a", "abstract": "In short."}))
    assert operations[0].write.abstract == "In short."
    assert dropped == 0


def test_texts_are_cut_to_what_the_contract_takes():
    operations, _ = convert(write_of({"name": "a"}, reason="r" * 900, abstract="a" * 9000, overview="ö" * 60_000))
    write = operations[0].write
    assert len(operations[0].reason) == 500
    assert len(write.abstract) == 4000
    assert len(write.overview.encode()) == 65536


def test_a_patch_takes_its_type_from_the_memory_it_is_for():
    uri = "viking://user/a/memories/sensor/one.md"
    edit = {"uri": uri, "patches": [{"field": "count", "value": "3"}, {"field": "overview", "value": "new"}]}
    operations, dropped = convert({"edit_operations": [edit]}, {uri: "sensor"})
    first, second = operations[0].edit.patches
    assert first.value.int64_value == 3
    assert second.value.string_value == "new"
    unknown, _ = convert({"edit_operations": [edit]})
    assert unknown[0].edit.patches[0].value.int64_value == 3, "the only type of all fields of that name"
    assert dropped == 0


def test_operations_go_back_to_the_model_as_they_came():
    uri = "viking://user/a/memories/sensor/one.md"
    data = {
        "write_operations": [
            {
                "memory_type": "sensor",
                "fields": [{"name": "level", "value": 0.1}, {"name": "name", "value": "a"}],
                "peer_id": "anna",
                "ranges": [{"start": 1, "end": 2}],
                "reason": "r",
                "abstract": "short",
                "overview": "long",
            }
        ],
        "edit_operations": [
            {
                "uri": uri,
                "patches": [
                    {"field": "name", "blocks": [{"search": "a", "replace": "b", "start_line": 1}], "value": None},
                    {"field": "count", "blocks": [], "value": 3},
                ],
                "ranges": [],
                "reason": "",
            },
            {
                "uri": uri,
                "patches": [{"field": "name", "blocks": [], "value": "b"}],
                "ranges": [],
                "reason": "",
            },
        ],
        "delete_operations": [{"uri": uri, "ranges": [{"start": 4, "end": 4}], "reason": "gone"}],
    }
    operations, _ = convert(data, {uri: "sensor"})
    assert operations[2].edit.patches[0].rename.string_value == "b", "the field names the memory"
    given = [as_answer(one) for one in operations]
    assert given == [*data["write_operations"], *data["edit_operations"], *data["delete_operations"]]


def test_the_schema_keeps_to_the_limits_of_the_api_and_names_what_there_is():
    schema = anthropic.transform_schema(wire_schema(TYPES))
    body = {
        "model": "some-model",
        "max_tokens": 1,
        "messages": [{"role": "user", "content": "x"}],
        "tools": [to_tool_param(tool) for tool in tool_definitions()],
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
    }
    headers = {"x-api-key": "key", "anthropic-version": "1"}
    assert complaint("/v1/messages", headers, body, structured_output=True, tools=True) is None
    assert schema["$defs"]["WriteOperation"]["properties"]["memory_type"]["enum"] == [one.name for one in TYPES]
    for name, definition in schema["$defs"].items():
        assert set(definition["required"]) == set(definition["properties"]), name
    assert wire_schema(TYPES) == wire_schema(TYPES)


def test_a_record_is_one_line_and_says_what_was_cut():
    shown: dict[str, str] = {}
    one = memory("a.md", "preferences", {"topic": "t", "content": "first\nsecond\u2028" + "x" * 100})
    record = memory_line(one, shown, 20)
    assert len(record.splitlines()) == 1
    read = json.loads(record)
    assert read["fields"]["content"] == ("first\nsecond\u2028" + "x" * 100)[:19]
    assert read["cut_fields"] == ["content"]
    assert shown == {one.uri: "preferences"}


def test_float32_is_shown_without_the_noise_of_a_double():
    assert plain_value(common_pb2.FieldValue(float32_value=0.1)) == 0.1


def test_queries_are_few_and_cover_the_whole_conversation():
    messages = [message(n, f"word{n} is said here") for n in range(1, 61)]
    messages.append(message(61, "assistants do not ask", role=common_pb2.ROLE_ASSISTANT))
    asked = queries(messages)
    assert len(asked) == 3
    numbers = [int(query.split()[0].removeprefix("word")) for query in asked]
    assert numbers[0] <= 20 < numbers[1] <= 40 < numbers[2]
    assert not any("assistants" in query for query in asked)
    assert queries([]) == []
    assert queries([message(1, "...")]) == []
