"""Each rule by which the server refuses or skips an operation is told in the prompt.

The refusals are read from the sources: a new one without a row here fails the test, and so does a row whose words the
prompt has lost.
"""

import ast
import inspect
from collections.abc import Iterator
from types import ModuleType

import pytest

from runekeep_extractor.prompts.static_prompt import system_prompt
from runekeep_schemas.documents import filenames, merge, patch, uris
from runekeep_schemas.memory_types import coerce
from runekeep_server.merging import operations, routing
from tests.doubles.fixed_job import FixedJob

MODULES = (operations, routing, merge, patch, coerce, filenames, uris)
ERRORS = {"_Refused", "Skipped", "MergeError", "FieldError", "PatchError", "FileNameError", "UriError"}

SHOWN = "of a URI that is shown"
FIELDS = "only fields of the type, with values as described"
BLOCKS = "search is text of the field exactly as it stands, occurring once"
ONCE = "One operation a memory, all its patches in one edit, each field once"
KEEPS = "An edit must keep at least half the words of the profile, and a third of any other text of 40 words or more"
HEADINGS = 'Under exactly these English headings: "## Guidelines"'
DELETES = "At most 10 of a type, or as many as its heading says"
NOT_BOTH = "never what you write or edit too"
RANGES = "numbers of the messages an operation rests on, ends included"
EVIDENCE = "a delete without is refused"
PEERS = "the peer a memory is about, if the job allows that one"
OWN_WORDS = "with ranges of messages without one"
NAMED = "must be given unless described as empty"
SET_ONCE = "`*` fields are set once"
RENAME = "To rename a memory, patch a field that names it with a value"
RECORDS = "Only for names in the records"
NO_BLOCKS = "`=`, `+` and `*` fields take no blocks"
JOB = "The job names the types and peers that may be written"
"""Told with each job, by `conversation_prompt`."""
CODE = "No answer of a model leads to it"
"""The conversion of answers, or their size, rules it out."""

TOLD = {
    # operations.py
    "is named twice in one edit: put its changes in one": ONCE,
    "an earlier operation of this output gives it another value: put both into one operation": ONCE,
    "an earlier operation of this output writes this memory: leave out the one or the other": NOT_BOTH,
    "are never deleted by a commit: edit what is wrong": DELETES,
    "one commit may delete": DELETES,
    "a delete names the messages that show the memory to be wrong": EVIDENCE,
    "the URI is of no memory": SHOWN,
    "there is no memory at the URI: write it, or leave it out": SHOWN,
    "memory_type names no type that was given": CODE,
    "session skills are extracted only if": JOB,
    "the memory would take": CODE,
    "supersedes it, and there is no such memory": "Experiences it makes obsolete, one name a line",
    "supersedes it: delete it if that is right": CODE,
    "tools and skills of the batch are not counted: it names too many": CODE,
    "no record of the batch names the tool or skill": RECORDS,
    "keep the names of the records": "tools and skills keep theirs",
    "has this name: put what is missing there into one edit": "No other memory may have that name",
    # routing.py
    "a range is reversed, or begins or ends outside of the batch": RANGES,
    "none of those who said the messages in the ranges may be written about": JOB,
    "the peer that is named is not the one whom the memory is about": PEERS,
    "the memory is about the user, and the ranges hold only peers' words": OWN_WORDS,
    "the policy keeps the user out": JOB,
    "the policy keeps peers out": JOB,
    "the peer's id is no safe name": PEERS,
    "no message of the batch is of that peer": PEERS,
    # merge.py
    "names the memory and must not be empty": NAMED,
    "are only added, and another one has this name: give the new one its own": CODE,
    "keeps its first value": SET_ONCE,
    "is computed when it is shown and never written": FIELDS,
    "is made from the other fields by the template of": FIELDS,
    "is no field of": FIELDS,
    "a counter of an extractor never shrinks": "never less than 0",
    "takes no number to add": CODE,
    "does not name the memory": CODE,
    "names the memory: rename it": RENAME,
    "takes no patch": NO_BLOCKS,
    "of its text where": KEEPS,
    "lacks the heading": HEADINGS,
    # patch.py: `parse_blocks` and `format_blocks` are for files, not for answers
    "there is text outside the blocks": CODE,
    "there is no block": CODE,
    "the text holds a line that would be read as a marker": CODE,
    "a patch has at most": CODE,
    "the text is too long for so many blocks": CODE,
    "the old text is empty, which only an empty field has": BLOCKS,
    "start_line is a line number from 1": CODE,
    "must come before the old text": CODE,
    "comes where": CODE,
    "is missing": CODE,
    "the old text occurs too often": BLOCKS,
    "the old text does not occur": BLOCKS,
    "name more of it, or its line": BLOCKS,
    # coerce.py: conversion drops such values before they are sent
    "takes text, not": CODE,
    "holds a NUL character": CODE,
    "holds half of a surrogate pair": CODE,
    "is one of": FIELDS,
    "takes a whole number, not": CODE,
    "does not fit into 64 bits": CODE,
    "takes a number, not": CODE,
    "is no finite number of 32 bits": CODE,
    "takes true or false, not": CODE,
}
OF_URIS = SHOWN
"""All of `uris.py`, and an error that is passed on with its own text."""


def constants(node: ast.AST) -> str:
    """All literal text in an expression."""
    return "".join(one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))


def refusals(module: ModuleType) -> Iterator[tuple[int, str]]:
    """Line and message of each error that the module makes; a message in a variable is its last assignment before."""
    tree = ast.parse(inspect.getsource(module))
    assigned = [
        (one.lineno, one.targets[0].id, one.value)
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)
    ]
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ERRORS):
            continue
        first = call.func.id in ("PatchError", "FileNameError", "UriError")
        message = call.args[0 if first else 1]
        if isinstance(message, ast.Name):
            named = [(line, value) for line, name, value in assigned if name == message.id and line < call.lineno]
            message = max(named, key=lambda one: one[0])[1] if named else message
        yield call.lineno, constants(message)


@pytest.fixture(scope="module")
def prompt() -> str:
    return " ".join("\n".join(system_prompt(FixedJob([]))).split())


def test_each_refusal_has_a_row() -> None:
    found = set()
    for module in MODULES:
        for line, message in refusals(module):
            if module is uris or not message:
                continue
            rows = [words for words in TOLD if words in message]
            assert rows, f"{module.__name__}:{line}: {message!r} has no row"
            found.add(max(rows, key=len))
    assert TOLD.keys() - found == set(), "no refusal says so any more"


def test_the_prompt_tells_each_rule(prompt: str) -> None:
    told = {words for words in (*TOLD.values(), OF_URIS) if words not in (CODE, JOB)}
    assert [words for words in told if words not in prompt] == []
