"""What docs/guides/types.md says of the built-in types and of the keys of a file, held against the code."""

import re
from pathlib import Path

from runekeep_schemas.memory_types.model import MAX_DELETES
from runekeep_schemas.type_files import schema_file
from runekeep_schemas.type_files.registry import Registry

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "types.md"


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, row by row, without its head."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"^#+ {heading}$(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"the page has no heading {heading!r}"
    table = [line for line in found[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[2:]]


def keys(heading: str) -> set[str]:
    return {name for row in rows(heading) for name in re.findall(r"`(\w+)`", row[0])}


def test_the_built_in_types_are_as_the_table_says() -> None:
    told = {}
    for name, holds, file, changes, deletes in rows("Built in"):
        assert ("(execution type)" in holds) == Registry.load()[name.strip("`")].agent_only
        told[name.strip("`")] = (file.strip("`"), changes, int(deletes))
    made = {
        type.name: (
            f"memories/{type.directory.partition('/memories')[2].lstrip('/')}/{type.filename_template}".replace(
                "//", "/"
            ),
            "upsert" if type.mergeable else "add only",
            type.max_deletes,
        )
        for type in Registry.load()
    }
    assert told == made


def test_every_key_of_a_file_is_described_and_no_other() -> None:
    assert keys("Keys of a type") == schema_file._TypeModel.model_fields.keys()
    assert keys("Keys of a field") == schema_file._FieldModel.model_fields.keys()
    assert keys("Keys of a derived value") == schema_file._DerivedModel.model_fields.keys()
    (said,) = [row[2] for row in rows("Keys of a type") if row[0] == "`max_deletes`"]
    assert f"default {MAX_DELETES}" in said


def test_every_guard_stands_where_it_holds() -> None:
    told: dict[str, set[str]] = {}
    for guard, held, _ in rows("Guards"):
        name, *more = re.findall(r"`(\w+)", guard)
        numbers = [float(number) for number in re.findall(r"[\d.]+", guard)] if name == "keep_ratio" else []
        for path in re.findall(r"`(\w+\.\w+)`", held):
            told.setdefault(name, set()).add(path)
            field = Registry.load()[path.partition(".")[0]].field(path.partition(".")[2])
            if name == "keep_ratio":
                assert [field.keep_ratio, *([field.keep_from] if more else [])] == numbers, path
                assert more or not field.keep_from, path
        told.setdefault(name, set())
    made: dict[str, set[str]] = {"keep_ratio": set(), "required_headings": set(), "choices": set()}
    for type in Registry.load():
        for field in type.fields:
            for guard, held in made.items():
                if getattr(field, guard):
                    held.add(f"{type.name}.{field.name}")
    assert {name: told[name] for name in made} == made
    assert told.keys() - made.keys() == {"max_deletes", "delete_evidence"}
