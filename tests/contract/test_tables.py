"""The declarations of tables name every table and column of a store that holds what users said, on both engines."""

from collections.abc import Mapping
from dataclasses import fields
from pkgutil import resolve_name

import pytest
from sqlalchemy import BigInteger, Double, Integer, SmallInteger, inspect

from runekeep_storage.accounts.accounts import Usage
from runekeep_storage.erasure.receipts import Receipt
from runekeep_storage.erasure.verification import CHECKS
from runekeep_storage.indexing import rows
from runekeep_storage.tables import BY_NAME, TABLES, Excluded, Export, Statement, Table
from runekeep_storage.transfer.exports.layout import FIRST, REST
from runekeep_storage.transfer.exports.rows import FORMS
from tests.support.storage.migrations import Place

OWNERS = {"account", "user_id", "session_id"}
LABELS = set(
    # Ids.
    "message_id turn_id task_id job_id output_id request_id key_id erasure_id point_id tool_id trace_id index_id"
    " worker_id store_id file_id former_ids lane blob hosted_uri traceparent holder lease_holder import_id"
    # States, kinds, versions.
    " role kind state origin reaction op method code scope phase version_num revision compatible_from mark memory_type"
    # Digests, models, counters as JSON.
    " digest previous_digest lease_digest type_digests model dense_model dense_next_model extractor usage receipt"
    " line_vectors_model"
    # About operators and their workers, and what an erasure empties at its end.
    " api_keys.label api_keys.accounts audit_events.actor audit_events.subject audit_events.peer workers.accounts"
    " workers.lost jobs.lost_by erasures.remains embedder_changes.name embedder_changes.source_name"
    " embedder_changes.source_model embedder_changes.problem".split()
)
"""Columns of texts that hold nothing of what users and agents said, in whatever table."""
NOT_IN_LINES = {
    # An import derives them from other columns.
    "messages": {"shown", "calls"},
    "turn_artifacts": {"hosted_uri"},
    "memories": {
        "dense",
        "dense_model",
        "dense_next",
        "dense_next_model",
        "sparse",
        "line_vectors",
        "line_vectors_model",
    },
    # Of attempts: after an import, a job begins anew.
    "jobs": set("failures repair traceparent worker_id output_id lease_holder lease_digest lost_by".split()),
}
"""Columns of texts that an export leaves out."""


def found_in(place: Place) -> dict[str, dict[str, bool]]:
    """By table its columns, and whether each holds text or bytes."""
    numbers = (BigInteger, Double, Integer, SmallInteger)
    return place.look(
        lambda connection: {
            table: {
                column["name"]: not isinstance(column["type"], numbers)
                for column in inspect(connection).get_columns(table)
            }
            for table in inspect(connection).get_table_names()
        }
    )


def texts_of(columns: Mapping[str, bool]) -> set[str]:
    return {column for column, is_text in columns.items() if is_text and column not in OWNERS}


def undeclared(found: Mapping[str, Mapping[str, bool]], tables: Mapping[str, Table]) -> list[str]:
    """What the store has and no declaration names, and the other way round."""
    wrong = sorted(found.keys() ^ tables.keys())
    for name in found.keys() & tables.keys():
        owners, texts = set(tables[name].owner), set(tables[name].texts)
        unknown = {column for column in texts_of(found[name]) - texts if not LABELS & {column, f"{name}.{column}"}}
        wrong += [f"{name}.{column}" for column in ((found[name].keys() & OWNERS) ^ owners) | unknown]
        wrong += [f"{name}.{column}" for column in texts - found[name].keys()]
    return wrong


# Of SQLite. An index of an expression has no columns to name.
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
def test_every_table_and_every_column_of_texts_has_a_declaration(place: Place) -> None:
    place.migrate()
    found = found_in(place)

    assert undeclared(found, BY_NAME) == [] and len(BY_NAME) == len(TABLES)
    keys = place.look(lambda one: {name: inspect(one).get_pk_constraint(name)["constrained_columns"] for name in found})
    assert {table.name: table.key for table in TABLES} == {
        name: tuple(column for column in key if column not in ("account", "user_id")) for name, key in keys.items()
    }
    left_out = {name: texts_of(found[name]) - {*form.columns} for name, form in FORMS.items()}
    assert {name: columns for name, columns in left_out.items() if columns} == NOT_IN_LINES


@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
def test_what_nobody_declared_is_found(place: Place) -> None:
    place.migrate()
    place.look(lambda connection: connection.exec_driver_sql("CREATE TABLE notes (account TEXT, note TEXT)"))
    place.look(lambda connection: connection.exec_driver_sql("ALTER TABLE tasks ADD COLUMN remark TEXT"))
    place.look(lambda connection: connection.exec_driver_sql("ALTER TABLE workers ADD COLUMN user_id TEXT"))

    wrong = undeclared(found_in(place), {name: table for name, table in BY_NAME.items() if name != "recalled"})

    assert sorted(wrong) == ["notes", "recalled", "tasks.remark", "workers.user_id"]


def test_what_a_declaration_names_exists() -> None:
    for table in TABLES:
        for way in (table.user, table.session, table.message, table.exported):
            if isinstance(way, Statement):
                assert callable(resolve_name(f"runekeep_storage.{way}")), (table.name, way)
    assert {check for table in TABLES for check in table.checks} == CHECKS.keys()
    assert {table.name for table in TABLES if isinstance(table.exported, Export)} == FORMS.keys()
    assert {table.name for table in TABLES if table.is_in_receipts} <= {field.name for field in fields(Receipt)}
    assert {table.name for table in TABLES if "dense" in table.texts} == set(rows.TABLES), "the index is made of them"
    assert {table.name for table in TABLES if table.is_in_usage} <= {field.name for field in fields(Usage)}


def test_a_table_with_what_users_said_says_how_it_is_erased() -> None:
    nothing = Table("none", "Nothing.")
    for table in TABLES:
        assert ("user_id" in table.owner) == (table.user != nothing.user), table.name
        assert ("session_id" in table.owner) <= (table.session != nothing.session), table.name
        if table.texts:
            assert not isinstance(table.user, Excluded) and not isinstance(table.session, Excluded), table.name
            assert not isinstance(table.message, Excluded), table.name
            assert table.checks and table.exported != nothing.exported, table.name


def test_entries_of_an_export_keep_their_order() -> None:
    """Readers of any release go by it."""
    assert [*FIRST, "messages", *REST] == (
        "sessions jobs messages image_descriptions archives turns turn_artifacts tool_outputs recalled usages tasks"
        " proposals commits memories active_counts"
    ).split()
