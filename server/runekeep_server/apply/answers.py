"""Checks an answer to a question: its sources must exist in the caller's space, and it must hold no secret."""

from collections.abc import Iterable
from dataclasses import dataclass

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import memory_service_pb2
from runekeep_schemas.documents.uris import Place, UriError, canonicalize, parse
from runekeep_schemas.secrets import withhold
from runekeep_server.apply.output import Output, Unusable
from runekeep_server.protocol.secret_scan import scan_for_secrets
from runekeep_server.wire.basics import extractor_json
from runekeep_storage.database import SpaceDatabase
from runekeep_storage.jobs import jobs
from runekeep_storage.memories.apply import Applied
from runekeep_storage.records import Job
from runekeep_storage.search import answers
from runekeep_storage.search.answers import PreparedAnswer, Source, Statement


@dataclass(frozen=True, slots=True)
class _Read:
    """An answer as it may be shown. `sources_removed`: sources that name nothing in the caller's space."""

    statements: list[Statement]
    unknown: list[str]
    sources_removed: int
    secrets_withheld: int


async def apply(database: SpaceDatabase, job: Job, output: Output, *, withhold_secrets: bool) -> Applied | Unusable:
    """Stores the answer for the server of its caller, and ends the job. Raises LeaseLost, StoreUnavailable."""
    if len(output.answers) != 1:
        return Unusable(f"the output of a question holds {len(output.answers)} answers, not one", {})
    read = await scan_for_secrets(_read, output.answers[0], job.user, withhold_secrets=withhold_secrets)
    result = {
        "unknown": read.unknown,
        "sources_removed": read.sources_removed,
        "secrets_withheld": read.secrets_withheld,
        "extractor": extractor_json(output.extractor),
    }
    prepared = PreparedAnswer(output.lease, output.output_id, read.statements, result, output.usage)
    return await database.write(answers.apply, jobs.space_of(job), prepared)


def _read(answer: pb.Answer, user: str, *, withhold_secrets: bool) -> _Read:
    withheld = 0

    def shown(text: str) -> str:
        nonlocal withheld
        if not withhold_secrets:
            return text
        text, found = withhold(text)
        withheld += len(found)
        return text

    statements = [Statement(shown(one.text), _sources(one.sources, user)) for one in answer.statements]
    named = sum(len(one.sources) for one in answer.statements)
    kept = sum(len(one.sources) for one in statements)
    return _Read(statements, [shown(text) for text in answer.unknown], named - kept, withheld)


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
