"""What the offline engine reads out of one turn, in a form that tests compare."""

from collections.abc import Sequence

from google.protobuf import json_format

from runekeep.v1 import common_pb2, extractor_service_pb2, turn_memory_service_pb2
from runekeep_extractor.offline.turns import turn_memory
from tests.doubles.fixed_job import message


def memory_of(
    *texts: str, answers: Sequence[str] = (), spec: str = "", opens: bool = False
) -> extractor_service_pb2.TurnMemory:
    """Of a turn in which the user said these texts, a message each, and the assistant those answers."""
    said = [message(number, text) for number, text in enumerate(texts, start=1)]
    said += [
        message(number, text, role=common_pb2.ROLE_ASSISTANT)
        for number, text in enumerate(answers, start=len(said) + 1)
    ]
    return turn_memory("t1", said, opens=opens, spec=spec)


def read(*texts: str, **more) -> turn_memory_service_pb2.TurnFingerprint:
    return memory_of(*texts, **more).fingerprint


def wishes(*texts: str) -> dict[str, tuple]:
    """Assertions by key: value and severity."""
    return _plain(read(*texts).assertions)


def exclusions(*texts: str) -> dict[str, tuple]:
    return _plain(read(*texts).exceptions)


def facts(*texts: str) -> dict[str, tuple]:
    return _plain(read(*texts).facts)


def signals_of(fingerprint: turn_memory_service_pb2.TurnFingerprint) -> int:
    return len(fingerprint.assertions) + len(fingerprint.exceptions) + len(fingerprint.facts)


def _plain(signals: Sequence[turn_memory_service_pb2.TurnSignal]) -> dict[str, tuple]:
    found: dict[str, tuple] = {}
    for signal in signals:
        assert signal.key not in found, f"{signal.key} twice"
        severity = turn_memory_service_pb2.SignalSeverity.Name(signal.severity).removeprefix("SIGNAL_SEVERITY_").lower()
        found[signal.key] = (json_format.MessageToDict(signal.value), severity)
    return found
