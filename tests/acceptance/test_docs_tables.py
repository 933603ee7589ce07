"""Fields and words in tables of the pages are those of the contract and the code."""

import ast
import re

from runekeep.v1 import (
    common_pb2,
    extractor_service_pb2,
    memory_service_pb2,
    session_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)
from runekeep_schemas.type_files.registry import Registry
from tests.support.pages import DOCS, ROOT, first_cells, section

SERVER = ROOT / "server" / "runekeep_server"


def test_the_triggers_of_commits_are_those_of_the_contract() -> None:
    assert first_cells(section(DOCS / "guides" / "sessions.md", "Commits")) == {
        field.name for field in session_service_pb2.AutoCommit.DESCRIPTOR.fields
    }


def test_the_levels_of_recalls_are_those_of_the_contract() -> None:
    names = memory_service_pb2.RecallLevel.keys()
    levels = {name.removeprefix("RECALL_LEVEL_").lower() for name in names}
    page = DOCS / "guides" / "recall.md"
    assert first_cells(section(page, "Levels")) == levels - {"unspecified"}
    parts = {field.name for field in session_service_pb2.GetSessionContextResponse.DESCRIPTOR.fields}
    assert first_cells(section(page, "The context of a session")) < parts


def test_the_words_of_turn_memory_are_those_of_the_contract() -> None:
    text = section(DOCS / "guides" / "turn-memory.md", "Fingerprints")
    named = {field.name for field in turn_memory_service_pb2.TurnFingerprint.DESCRIPTOR.fields}
    signal = {field.name for field in turn_memory_service_pb2.TurnSignal.DESCRIPTOR.fields}
    assert first_cells(text) < named and signal <= set(re.findall(r"`(\w+)`", text))
    assert words_of("SignalSeverity") <= set(re.findall(r"`(\w+)`", text))
    assert first_cells(section(DOCS / "guides" / "turn-memory.md", "What each audience sees")) == words_of(
        "ContextAudience"
    )
    assert words_of("Reaction") | words_of("FeedbackOrigin") <= set(
        re.findall(r"`(\w+)`", section(DOCS / "guides" / "turn-memory.md", "Feedback"))
    )


def words_of(enum: str) -> set[str]:
    """The words of an enum of turn memory, as the client says them."""
    values = turn_memory_service_pb2.DESCRIPTOR.enum_types_by_name[enum].values
    prefix = re.sub(r"(?<!^)([A-Z])", r"_\1", enum).upper() + "_"
    return {value.name.removeprefix(prefix).lower() for value in values} - {"unspecified"}


def literals_returned(function: ast.FunctionDef) -> set[str]:
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
    parts = [part for value in returned for part in ast.walk(value)]
    return {str(part.value) for part in parts if isinstance(part, ast.Constant)}


def test_the_reasons_of_what_is_left_out_are_those_of_the_code() -> None:
    used: set[str] = set()
    for file in (path for room in ("apply", "merging") for path in (SERVER / room).glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="Skipped" | "_Refused"), args=[reason, *_]):
                    assert isinstance(reason, ast.Constant), f"{file.name}:{node.lineno}: a reason is a literal word"
                    used.add(str(reason.value))
                case ast.Call(func=ast.Attribute(attr="left_out"), args=[ast.Constant(value=word), *_]):
                    used.add(str(word))
                case ast.FunctionDef(name="_word"):
                    used |= literals_returned(node)
                case ast.Dict(keys=[ast.Constant(value="reason"), *_], values=[ast.Constant(value=word), *_]):
                    used.add(str(word))
    text = section(DOCS / "concepts.md", "What a task says")
    documented = first_cells(text[text.index("Reasons in `skipped`") :])
    assert len(used) >= 12
    assert documented == used


def test_the_outcomes_of_commits_are_those_of_the_contract() -> None:
    outcomes = {name.removeprefix("COMMIT_OUTCOME_").lower() for name in task_service_pb2.CommitOutcome.keys()}  # noqa: SIM118 (an enum is no dict)
    text = section(DOCS / "concepts.md", "What a task says")
    assert first_cells(text[: text.index("Reasons in `skipped`")]) == outcomes - {"unspecified"}


def test_the_reasons_of_errors_are_those_of_the_contract() -> None:
    reasons = {name.removeprefix("ERROR_REASON_") for name in common_pb2.ErrorReason.keys()}  # noqa: SIM118 (an enum is no dict)
    assert set(re.findall(r"^## (\w+)$", (DOCS / "operate" / "errors.md").read_text(), re.MULTILINE)) == reasons - {
        "UNSPECIFIED"
    }


def test_the_classes_of_failures_are_those_of_the_contract() -> None:
    names = extractor_service_pb2.FailureClass.keys()
    classes = {name.removeprefix("FAILURE_CLASS_").lower() for name in names}
    assert first_cells(section(DOCS / "operate" / "extractors.md", "Failures")) == classes - {"unspecified"}


def test_the_built_in_types_are_those_of_the_registry() -> None:
    assert first_cells(section(DOCS / "guides" / "types.md", "Built in")) == set(Registry.load().names())
