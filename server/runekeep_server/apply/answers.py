"""Checks an answer to a question: its sources must exist in the caller's space, and it must hold no secret."""

from collections.abc import Iterable

from runekeep.v1 import memory_service_pb2
from runekeep_schemas.documents.uris import Place, UriError, canonicalize, parse
from runekeep_server.apply.output import Output, Unusable
from runekeep_server.protocol.secret_scan import scan_for_secrets, withhold_all
from runekeep_server.wire.basics import extractor_json
from runekeep_storage.database import SpaceDatabase
from runekeep_storage.jobs import jobs
from runekeep_storage.memories.apply import Applied
from runekeep_storage.records import Job
from runekeep_storage.search import answers
from runekeep_storage.search.answers import PreparedAnswer, Source, Statement


async def apply(database: SpaceDatabase, job: Job, output: Output, *, withhold_secrets: bool) -> Applied | Unusable:
    """Stores the answer for the server of its caller, and ends the job. Raises LeaseLost, StoreUnavailable."""
    if len(output.answers) != 1:
        return Unusable(f"the output of a question holds {len(output.answers)} answers, not one", {})
    answer = output.answers[0]
    texts, withheld = [*(one.text for one in answer.statements), *answer.unknown], 0
    if withhold_secrets:
        scanned = await scan_for_secrets(withhold_all, texts)
        texts = [text for text, _ in scanned]
        withheld = sum(len(secrets) for _, secrets in scanned)
    count = len(answer.statements)
    statements = [
        Statement(text, _sources(one.sources, job.user))
        for text, one in zip(texts[:count], answer.statements, strict=True)
    ]
    named = sum(len(one.sources) for one in answer.statements)
    result = {
        "unknown": texts[count:],
        # Sources that name nothing in the caller's space.
        "sources_removed": named - sum(len(one.sources) for one in statements),
        "secrets_withheld": withheld,
        "dropped_items": output.dropped_items,
        "extractor": extractor_json(output.extractor),
    }
    prepared = PreparedAnswer(output.lease, output.output_id, statements, result, output.usage)
    return await database.write(answers.apply, jobs.space_of(job), prepared)


def _sources(named: Iterable[memory_service_pb2.AnswerSource], user: str) -> list[Source]:
    """Returns the sources in canonical form, without those that name no memory, skill or message of the user."""
    found = []
    for one in named:
        try:
            place = parse(canonicalize(one.uri, user))
        except UriError:
            continue
        if place.kind is Place.SESSIONS and len(place.path) == 1 and one.sequence:
            found.append(Source(place.uri, place.path[0], one.sequence))
        elif place.kind in (Place.MEMORIES, Place.SKILLS) and not one.sequence:
            found.append(Source(place.uri))
    return found
