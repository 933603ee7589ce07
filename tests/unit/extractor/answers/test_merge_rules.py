"""Engines and server merge by the same rules, of which the contract and the guide know every one."""

import pytest

from runekeep.v1 import memory_service_pb2
from runekeep_extractor.answers.operations import plain_value
from runekeep_schemas.documents.merge import create, merge_write
from runekeep_schemas.memory_types.merge_rules import MERGE_RULES, MergeOp
from runekeep_schemas.memory_types.model import Field, FieldType, MemoryType
from runekeep_server.wire.memories import memory_type
from tests.support.pages import DOCS, first_cells, section
from tests.support.worker import write
from tests.unit.extractor.pipeline.test_compose import composed


@pytest.mark.parametrize("op", MERGE_RULES)
@pytest.mark.parametrize("is_new", [True, False])
def test_two_values_put_together_by_an_engine_give_what_one_after_the_other_gives(op: MergeOp, is_new: bool) -> None:
    numbers = MERGE_RULES[op].numbers_only
    present, first, later = (7, 2, 3) if numbers else ("Tea.", "Green tea.", "Green tea.\nAnd a dog.")
    directory, value = "viking://user/{user_space}/memories/notes", FieldType.INT64 if numbers else FieldType.STRING
    fields = (Field("name", merge_op=MergeOp.IMMUTABLE), Field("value", value, merge_op=op), Field("content"))
    kind = MemoryType("notes", "Notes.", directory, "{name}.md", fields=fields)
    there = create(kind, {"name": "One"} if is_new else {"name": "One", "value": present})

    pieces = [[write("notes", name="One", value=one, ranges=[(at, at)])] for at, one in ((1, first), (2, later))]
    (made,) = composed(*pieces, types=[memory_type(kind)])

    together = merge_write(kind, there, {name: plain_value(one) for name, one in made.write.fields.items()})
    for one in (first, later):
        there = merge_write(kind, there, {"name": "One", "value": one})
    assert together == there


def test_the_contract_and_the_guide_name_every_rule() -> None:
    assert set(memory_service_pb2.MergeOp.keys()) == {f"MERGE_OP_{op.name}" for op in MergeOp} | {
        "MERGE_OP_UNSPECIFIED"
    }
    assert first_cells(section(DOCS / "guides" / "types.md", "How fields take new values")) > {*map(str, MERGE_RULES)}
    assert set(MergeOp) - set(MERGE_RULES) == {MergeOp.AVG}, "a derived value alone has no rule"
