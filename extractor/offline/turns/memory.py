"""The memory of one turn: its fingerprint, from what its user said, and its summary."""

from collections.abc import Sequence

from extractor.offline.turns.account import account_of
from extractor.offline.turns.facts import read_facts
from extractor.offline.turns.foreign import read_foreign
from extractor.offline.turns.objective import main_request, objective_of, opening_of, title_of, topics_of
from extractor.offline.turns.promotions import promotions_of
from extractor.offline.turns.queries import queries_of
from extractor.offline.turns.reading import ENGLISH, read
from extractor.offline.turns.signals import Signals, read_wishes
from extractor.offline.turns.wishes import FRAGMENT
from extractor.turn_wire import fingerprint_to_wire
from runekeep.v1 import common_pb2, extractor_service_pb2
from schemas.turns.fingerprint import Fingerprint


def turn_memory(
    turn_id: str, messages: Sequence[common_pb2.Message], *, opens: bool, spec: str = ""
) -> extractor_service_pb2.TurnMemory:
    """What a turn said, from its messages. `opens`: it is the first of its session; `spec`: what counts as an assistant
    signal, empty: nothing.
    """
    said = read(messages)
    request = main_request(said)
    signals = Signals()
    for one in said:
        if not one.wishes:
            continue
        if one.language != ENGLISH:
            read_foreign(one.text, one.language, signals)
            continue
        acting = one.asks or not one.states or FRAGMENT.match(one.text) is not None
        left = read_wishes(one.text, signals, acting=acting, objective=one is request and one.asks)
        if one.states and left:
            read_facts(left, signals)
    fingerprint = Fingerprint(
        # The turn is named once, in what holds both.
        turn_id="",
        objective=objective_of(request) or opening_of(messages),
        topics=topics_of(said),
        assertions=tuple(signals.assertions),
        exceptions=tuple(signals.exceptions),
        facts=tuple(signals.facts),
        assistant_signals=tuple(promotions_of(messages, spec)),
        ctx_retrieval_queries=tuple(queries_of(said)),
        conversation_title=title_of(request) if opens else "",
    )
    summary = account_of(messages, request)
    return extractor_service_pb2.TurnMemory(
        turn_id=turn_id, fingerprint=fingerprint_to_wire(fingerprint), summary=summary
    )
