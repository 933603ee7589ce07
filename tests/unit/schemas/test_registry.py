from pathlib import Path

import pytest

from runekeep_schemas.memory_types.model import FieldType, MergeOp, OperationMode
from runekeep_schemas.type_files.registry import Registry
from runekeep_schemas.type_files.schema_file import SchemaError, SchemaFile

RECIPES = """\
name: recipes
description: What the user cooks.
directory: "viking://user/{user_space}/memories/recipes"
filename_template: "{dish}.md"
fields:
  - name: dish
    description: Name of the dish.
    merge_op: immutable
  - name: content
    description: How it is cooked.
"""


def changed(old: str, new: str) -> str:
    assert RECIPES.count(old) >= 1
    return RECIPES.replace(old, new, 1)


def test_defaults() -> None:
    type = SchemaFile("recipes.yaml", RECIPES).type
    assert type.enabled and not type.agent_only
    assert type.operation_mode is OperationMode.UPSERT
    assert type.field("content").merge_op is MergeOp.PATCH
    assert type.field("content").type is FieldType.STRING
    assert type.key_fields == ("dish",)
    assert (type.max_deletes, type.delete_evidence) == (10, True)
    assert type.field("abstract").name == "abstract"
    with pytest.raises(KeyError):
        type.field("spice")


BAD = {
    "no YAML": (changed("name: recipes", "name: [recipes"), 2, "this is no YAML"),
    "control character": (changed("How it", "How\x07it"), 10, "this is no YAML"),
    "unknown tag": (changed("name: recipes", "name: !!python/object:os.system x"), 1, "this is no YAML"),
    "no mapping": ("- a\n- b\n", 1, "a mapping"),
    "empty": ("", 1, "a mapping"),
    "repeated key": (changed("    merge_op: immutable", "    merge_op: immutable\n    merge_op: patch"), 9, "twice"),
    "unknown key": (changed("fields:", "colour: red\nfields:"), 5, "colour"),
    "missing key": (changed("description: What the user cooks.\n", ""), 1, "description: field required"),
    "missing key of a field": (changed("    description: How it is cooked.\n", ""), 9, "description"),
    "name is no identifier": (changed("name: recipes", "name: My Recipes"), 1, "name"),
    "reserved name": (changed("name: recipes", "name: session_skills"), 1, "session_skills"),
    "unknown merge_op": (changed("merge_op: immutable", "merge_op: sometimes"), 8, "merge_op"),
    "unknown merge_op beside what is merged in": (
        RECIPES.replace("  - name: dish", "  - &dish\n    name: dish").replace(
            "  - name: content", "  - <<: *dish\n    name: content\n    merge_op: sometimes"
        ),
        12,
        "merge_op",
    ),
    "unknown type": (changed("    merge_op: immutable", "    type: number\n    merge_op: immutable"), 8, "type"),
    "no fields": (RECIPES[: RECIPES.index("fields:")] + "fields: []\n", 5, "fields"),
    "repeated field": (changed("name: content", "name: dish"), 9, "twice"),
    "a view that is a number": (
        changed("cooked.", "cooked.\n  - {name: abstract, type: int64, description: A}"),
        11,
        "type must be string",
    ),
    "a view that names the file": (
        changed("cooked.", "cooked.\n  - {name: overview, merge_op: immutable, description: O}"),
        11,
        "patch or replace",
    ),
    "a view that is there from the start": (
        changed("cooked.", "cooked.\n  - {name: overview, initial: x, description: O}"),
        11,
        "no initial value",
    ),
    "a derived value called like a view": (
        RECIPES
        + "content_template: '{dish}'\nderived:\n  - {name: abstract, of: a, per: b, format: percent, when_zero: x}\n",
        13,
        "view",
    ),
    "unknown placeholder": (changed("{dish}.md", "{meal}.md"), 4, "'meal'"),
    "placeholder with a blank": (changed("{dish}.md", "{ dish }.md"), 4, "' dish '"),
    "key field may change": (changed("merge_op: immutable", "merge_op: patch"), 6, "immutable"),
    "key field is a float": (changed("merge_op: immutable", "merge_op: immutable\n    type: float32"), 6, "string"),
    "key fields are all optional": (
        changed("merge_op: immutable", "merge_op: immutable\n    optional: true"),
        4,
        "least",
    ),
    "optional without a reason": (changed("cooked.", "cooked.\n    optional: true"), 11, "may be empty anyway"),
    "no extension": (changed("{dish}.md", "{dish}.txt"), 4, ".md"),
    "separator in the file name": (changed("{dish}.md", "a/{dish}.md"), 4, "separator"),
    "hidden file": (changed("{dish}.md", ".{dish}.md"), 4, "leading dot"),
    "fewer deletes than none": (RECIPES + "max_deletes: -1\n", 11, "max_deletes"),
    "deletes that are no number": (RECIPES + "max_deletes: '3'\n", 11, "max_deletes"),
    "more deletes than a number of 32 bits": (RECIPES + "max_deletes: 2147483648\n", 11, "max_deletes"),
    "evidence that is no flag": (RECIPES + "delete_evidence: 1\n", 11, "delete_evidence"),
    "directory outside": (changed("/memories/recipes", "/sessions/recipes"), 3, "directory"),
    "directory climbs": (changed("/memories/recipes", "/memories/../recipes"), 3, "directory"),
    "directory of a named user": (changed("{user_space}", "bob"), 3, "directory"),
    "time of no field": (RECIPES + "time_field: cooked_at\n", 11, "'cooked_at' is not a string field"),
    "time of a number": (
        changed("cooked.", "cooked.\n  - {name: year, type: int64, description: Y}\ntime_field: year"),
        12,
        "'year' is not a string field of recipes",
    ),
    "no content": (changed("name: content", "name: text"), 5, "content"),
    "average as a field": (changed("cooked.", "cooked.\n    merge_op: avg"), 11, "derived"),
    "sum of texts": (changed("cooked.", "cooked.\n    merge_op: sum"), 11, "numbers"),
    "initial of another type": (
        changed("cooked.", "cooked.\n  - name: times\n    type: int64\n    description: Times.\n    initial: often"),
        14,
        "whole number",
    ),
    "headings of a number": (
        changed("cooked.", 'cooked.\n  - {name: times, type: int64, description: T, required_headings: ["# A"]}'),
        11,
        "strings",
    ),
    "where a guard begins that is none": (
        changed("cooked.", "cooked.\n    keep_from: 40"),
        11,
        "keep_ratio",
    ),
    "unknown placeholder in the content": (
        RECIPES + "content_template: |\n  Dish {dish}\n  {spice}\n",
        11,
        "'spice'",
    ),
    "derived without a template": (
        RECIPES + "derived:\n  - {name: rate, of: a, per: b, format: percent, when_zero: x}\n",
        11,
        "content_template",
    ),
    "derived from nothing": (
        RECIPES
        + "content_template: '{dish}'\nderived:\n  - {name: rate, of: a, per: b, format: percent, when_zero: x}\n",
        13,
        "'a' is no field",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file_is_refused_with_name_line_and_reason(case: str, tmp_path: Path) -> None:
    text, line, reason = BAD[case]
    path = tmp_path / "recipes.yaml"
    path.write_text(text)
    with pytest.raises(SchemaError) as caught:
        Registry.load([tmp_path])
    assert caught.value.file == str(path)
    assert caught.value.line == line
    assert reason in caught.value.reason
    assert str(caught.value) == f"{path}:{line}: {caught.value.reason}"


def test_text_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipes.yaml").write_bytes(RECIPES.encode() + b"# \xff\n")
    with pytest.raises(SchemaError, match=r"recipes\.yaml:11: this is no UTF-8"):
        Registry.load([tmp_path])


def test_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="No such file"):
        Registry.load([tmp_path / "absent"])


def test_a_recursive_document_is_refused_and_ends(tmp_path: Path) -> None:
    with pytest.raises(SchemaError):
        SchemaFile("loop.yaml", "name: &a {again: *a}\n")


def test_directory_adds_a_type(tmp_path: Path) -> None:
    (tmp_path / "recipes.yaml").write_text(RECIPES)
    (tmp_path / "notes.txt").write_text("not read")
    shipped, more = Registry.load(), Registry.load([tmp_path])
    assert set(more.names()) - set(shipped.names()) == {"recipes"}
    assert more.digest != shipped.digest
    assert more["recipes"] in more.long_term()


def test_directory_replaces_a_shipped_type(tmp_path: Path) -> None:
    text = RECIPES.replace("recipes", "preferences")
    (tmp_path / "mine.yml").write_text(text)
    registry = Registry.load([tmp_path])
    assert registry.names() == Registry.load().names()
    assert registry["preferences"].key_fields == ("dish",)


def test_one_type_twice_in_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RECIPES)
    (tmp_path / "b.yaml").write_text("# again\n" + RECIPES)
    with pytest.raises(SchemaError, match=r"b\.yaml:2: recipes is declared in .*a\.yaml as well"):
        Registry.load([tmp_path])


@pytest.mark.parametrize(
    ("directory", "filename", "allowed"),
    [
        ("viking://agent/{agent_space}/memories/preferences", "{dish}.md", False),
        ("viking://user/{user_space}/memories/Preferences", "{dish}.md", False),
        ("viking://user/{user_space}/memories", "{dish}.md", False),
        ("viking://user/{user_space}/memories", "Profile.md", False),
        ("viking://user/{user_space}/memories", "recipes.md", True),
        ("viking://user/{user_space}/memories/preferences/food", "{dish}.md", True),
    ],
)
def test_types_whose_files_could_collide_are_refused(
    tmp_path: Path, directory: str, filename: str, allowed: bool
) -> None:
    text = changed("viking://user/{user_space}/memories/recipes", directory).replace("{dish}.md", filename)
    (tmp_path / "recipes.yaml").write_text(text)
    if allowed:
        assert "recipes" in Registry.load([tmp_path])
    else:
        with pytest.raises(SchemaError):
            Registry.load([tmp_path])


@pytest.mark.parametrize(
    ("directory", "filename", "reason"),
    [
        ("viking://user/{user_space}/memories/events", "{dish}.md", "where recipes names files by fields"),
        ("viking://user/{user_space}/memories/events", "all.md", "where events names files by fields"),
        ("viking://user/{user_space}/memories", "Profile.md", "recipes and profile write the same file"),
    ],
)
def test_of_two_files_that_collide_the_operators_own_is_named(
    tmp_path: Path, directory: str, filename: str, reason: str
) -> None:
    text = changed("viking://user/{user_space}/memories/recipes", directory).replace("{dish}.md", filename)
    file = tmp_path / "recipes.yaml"
    file.write_text(text)
    with pytest.raises(SchemaError) as caught:
        Registry.load([tmp_path])
    assert caught.value.file == str(file)
    assert reason in caught.value.reason


def test_a_replaced_type_is_blamed_for_its_new_place(tmp_path: Path) -> None:
    """`cases` comes first among the shipped ones, and is read last here."""
    text = changed("viking://user/{user_space}/memories/recipes", "viking://user/{user_space}/memories/events")
    (tmp_path / "mine.yaml").write_text(text.replace("name: recipes", "name: cases"))
    with pytest.raises(SchemaError, match=r"mine\.yaml:3: cases shares the directory of events"):
        Registry.load([tmp_path])


def test_groups_and_order() -> None:
    registry = Registry.load()
    assert [type.name for type in registry] == list(registry.names()) == sorted(registry.names())
    assert [type.name for type in registry.execution()] == ["experiences", "trajectories"]
    assert len(registry.long_term()) == 9
    assert registry.enabled() == tuple(registry)
    assert len(registry) == 11
    assert registry.get("recipes") is None
    with pytest.raises(KeyError):
        registry["recipes"]


def test_disabled_types_are_known_but_not_extracted(tmp_path: Path) -> None:
    (tmp_path / "recipes.yaml").write_text(RECIPES + "enabled: false\n")
    registry = Registry.load([tmp_path])
    assert "recipes" in registry
    assert registry["recipes"] not in registry.enabled()


def test_digest_is_the_same_for_the_same_content(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.yaml").write_text(RECIPES)
    assert Registry.load([tmp_path / "one"]).digest == Registry.load([tmp_path / "two"]).digest
