"""Images are described once, and a commit never fails over one."""

import base64
import json

import pytest

from runekeep.v1 import common_pb2
from runekeep_extractor.pipeline import ModelEngine, images
from runekeep_extractor.pipeline.images import MAX_CALLS, Describer
from runekeep_extractor.providers.budget import total
from runekeep_extractor.providers.features import FORGOTTEN_AFTER
from runekeep_extractor.settings import AnthropicSettings
from tests.doubles.fixed_job import FixedJob, message
from tests.doubles.messages_api import MessagesApi, answer, error, held, overloaded, refusal, truncated
from tests.unit.extractor.model_client import a_job, client_of

PIXEL = base64.b64encode(b"\x89PNG not really").decode()
DATA = f"data:image/png;base64,{PIXEL}"


def shown(*urls: str, caption: str = "", task_id: str = "task-1", budget: int | None = None) -> FixedJob:
    """A job with one image a message, each after a text."""
    job = a_job(task_id=task_id, token_budget=budget)
    job.messages = []
    for number, url in enumerate(urls, 1):
        said = message(number, f"Look at number {number}")
        said.parts.add(image=common_pb2.ImagePart(url=url, caption=caption))
        job.messages.append(said)
    return job


def images_in(request) -> list[dict]:
    (said,) = request.body["messages"]
    return [block["source"] for block in said["content"] if block["type"] == "image"]


def described(request):
    """What a model answers that sees all images."""
    items = [{"image": n, "text": f"A cat,\n  {n}."} for n in range(1, len(images_in(request)) + 1)]
    return {"descriptions": items}


@pytest.fixture
def api():
    with MessagesApi() as double:
        double.otherwise = answer(described)
        yield double


async def describe(api, *jobs: FixedJob, most: int = 20, **options):
    async with client_of(api, **options) as client:
        describer = Describer(client, most, 10.0)
        return [await describer.describe(job, 0.0) for job in jobs]


async def test_images_are_described_in_one_call_and_captioned_for_this_job(api):
    job = shown("https://pictures.example/a.png", DATA)
    original = job.messages[0]
    (found,) = await describe(api, job, model_images="seeing")

    (call,) = api.calls
    assert call.body["model"] == "seeing"
    assert images_in(call) == [
        {"type": "url", "url": "https://pictures.example/a.png"},
        {"type": "base64", "media_type": "image/png", "data": PIXEL},
    ]
    assert "tools" not in call.body
    assert "Look at number 1" in call.last_text
    assert [(one.message_sequence, one.part_index, one.text) for one in found] == [
        (1, 1, "A cat, 1."),
        (2, 1, "A cat, 2."),
    ]
    assert [one.parts[1].image.caption for one in job.messages] == ["A cat, 1.", "A cat, 2."]
    assert original.parts[1].image.caption == "", "the input stays as it came"
    assert [(one.phase, one.calls) for one in job.spent] == [("images", 1)]
    assert job.calls[0].phase == "images"


async def test_a_retry_on_the_same_worker_costs_nothing(api):
    first, again = shown(DATA), shown(DATA)
    one, two = await describe(api, first, again)
    assert one == two
    assert len(api.calls) == 1
    assert again.messages[0].parts[1].image.caption == "A cat, 1."
    assert again.spent == []


async def test_another_task_gets_descriptions_of_its_own(api):
    """In one call with an image of somebody else's making, what a model says of a known image may be steered."""
    await describe(api, shown(DATA), shown(DATA, task_id="task-2"))
    assert len(api.calls) == 2


async def test_captions_that_somebody_gave_stay(api):
    job = shown(DATA, caption="Our cat")
    (found,) = await describe(api, job)
    assert found == []
    assert api.calls == []
    assert job.messages[0].parts[1].image.caption == "Our cat"


async def test_the_same_image_twice_is_looked_at_once_and_described_in_both_places(api):
    job = shown(DATA, "https://pictures.example/a.png", DATA)
    (found,) = await describe(api, job)
    assert len(images_in(api.calls[0])) == 2
    assert [one.message_sequence for one in found] == [1, 2, 3]
    assert found[0].text == found[2].text


@pytest.mark.parametrize(
    "url",
    [
        "http://pictures.example/a.png",
        "file:///etc/passwd",
        "data:image/svg+xml;base64,PHN2Zz4=",
        "data:image/png;base64,not base64!",
        "data:image/png;base64,",
        "data:image/png,plain",
        "data:text/plain;base64,aGk=",
        "https://pictures.example/" + "a" * 10_000,
    ],
)
async def test_what_the_api_does_not_take_is_not_sent(api, url):
    job = shown(url)
    assert await describe(api, job) == [[]]
    assert api.requests == []
    assert job.messages[0].parts[1].image.caption == ""


@pytest.mark.parametrize("kind", ["JPG", "jpeg", "gif;charset=x", "webp"])
async def test_media_types_are_named_as_the_api_names_them(api, kind):
    (found,) = await describe(api, shown(f"data:image/{kind};base64,{PIXEL}"))
    assert len(found) == 1
    assert images_in(api.calls[0])[0]["media_type"] in ("image/jpeg", "image/gif", "image/webp")


async def test_at_most_so_many_images_of_a_job(api):
    urls = [f"https://pictures.example/{n}.png" for n in range(30)]
    (found,) = await describe(api, shown(*urls), most=12)
    assert len(found) == 12
    assert [len(images_in(call)) for call in api.calls] == [10, 2]


async def test_it_can_be_switched_off(api):
    assert await describe(api, shown(DATA), most=0) == [[]]
    assert api.requests == []


async def test_one_bad_image_does_not_cost_the_others(api):
    bad = "https://pictures.example/gone.png"

    def picky(request):
        if any(source.get("url") == bad for source in images_in(request)):
            return error(400, "invalid_request_error", "Unable to download the file. Please verify the URL.")(request)
        return answer(described)(request)

    api.otherwise = picky
    urls = [bad if n == 2 else f"https://pictures.example/{n}.png" for n in range(5)]
    first, again = shown(*urls), shown(*urls)
    found, _ = await describe(api, first, again)
    assert [one.message_sequence for one in found] == [1, 2, 4, 5]
    calls = len(api.calls)
    assert calls <= MAX_CALLS
    alone = [images_in(call) for call in api.calls if len(images_in(call)) == 1]
    assert [sources[0]["url"] for sources in alone].count(bad) == 1, "and is not asked for again"
    assert again.spent == []


async def test_a_job_of_bad_images_ends_soon(api):
    api.otherwise = error(400, "invalid_request_error", "Could not process image")
    job = shown(*(f"https://pictures.example/{n}.png" for n in range(20)))
    assert await describe(api, job) == [[]]
    assert len(api.calls) == MAX_CALLS


@pytest.mark.parametrize(
    "behaviour", [refusal("cyber"), answer("I see a cat."), answer({}), truncated(), truncated('{"')]
)
async def test_without_a_usable_answer_there_is_no_description_and_no_failure(api, behaviour):
    api.otherwise = behaviour
    job = shown(DATA)
    assert await describe(api, job) == [[]]
    assert len(api.calls) == 1
    assert job.spent[0].phase == "images"


async def test_what_can_be_read_of_an_answer_is_taken(api):
    items = [
        {"image": "2", "text": "Two."},
        {"image": 9, "text": "Nine."},
        {"text": "?"},
        "x",
        {"image": 1, "text": " "},
    ]
    api.otherwise = answer("Here: " + json.dumps({"Descriptions": items}))
    (found,) = await describe(api, shown(DATA, "https://pictures.example/2.png"))
    assert [(one.message_sequence, one.text) for one in found] == [(2, "Two.")]


async def test_a_server_without_eyes_is_asked_once(monkeypatch):
    """llama.cpp says so with a status that otherwise means an outage."""
    now = [1000.0]
    monkeypatch.setattr(images.time, "monotonic", lambda: now[0])
    with MessagesApi(images=False) as api:
        async with client_of(api) as client:
            describer = Describer(client, 20, 10.0)
            assert await describer.describe(shown(DATA), 60.0) == []
            assert await describer.describe(shown(DATA, task_id="task-2"), 60.0) == []
            assert client.outage.reason == ""
            assert (len(api.calls), len(api.probes)) == (1, 1)
            now[0] += FORGOTTEN_AFTER
            assert await describer.describe(shown(DATA, task_id="task-3"), 60.0) == []
    assert (len(api.calls), len(api.probes)) == (2, 2), "it may have been started anew with eyes"


async def test_an_error_that_quotes_what_came_with_an_image_blinds_nobody(api):
    """Whoever writes `mmproj` beside a broken image does not take the descriptions of all others away."""

    def quoting(request):
        if any(source.get("url") == "https://pictures.example/bad.png" for source in images_in(request)):
            return error(400, "invalid_request_error", "bad image near 'you need the mmproj, multimodal'")(request)
        return answer(described)(request)

    api.otherwise = quoting
    bad, good = shown("https://pictures.example/bad.png", DATA), shown(DATA, task_id="task-2")
    first, second = await describe(api, bad, good)
    assert [one.message_sequence for one in first] == [2], "nor of the images beside it"
    assert len(second) == 1


async def test_a_server_that_cannot_be_asked_about_images_is_asked_again_later(api):
    api.otherwise = error(500, "server_error", "image input is not supported")
    monkey = api._probed
    api._probed = lambda request: overloaded()
    async with client_of(api) as client:
        describer = Describer(client, 20, 10.0)
        assert await describer.describe(shown(DATA), 0.0) == []
        api._probed = monkey
        api.otherwise = answer(described)
        assert len(await describer.describe(shown(DATA), 60.0)) == 1


async def test_an_outage_leaves_the_images_for_another_attempt(api):
    api.script(overloaded())
    job, again = shown(DATA), shown(DATA)
    async with client_of(api) as client:
        describer = Describer(client, 20, 10.0)
        assert await describer.describe(job, 0.0) == []
        found = await describer.describe(again, 60.0)
    assert len(found) == 1


async def test_a_model_that_is_too_slow_for_images_is_asked_once(api):
    api.otherwise = held(api.gate(), answer(described))
    urls = [f"https://pictures.example/{n}.png" for n in range(20)]
    assert await describe(api, shown(*urls), timeout=0.3) == [[]]
    assert len(api.calls) == 1


async def test_images_take_a_part_of_the_budget_only():
    job = shown(*(f"https://pictures.example/{n}.png" for n in range(20)), budget=100_000)
    with MessagesApi(counts_usage=False) as api:
        api.otherwise = answer(described)
        (few,) = await describe(api, job)
        assert 0 < len(few) < 20
        assert sum(map(total, job.spent)) < 30_000
        assert await describe(api, shown(DATA, budget=20_000)) == [[]]


async def test_the_engine_shows_the_model_what_images_show_and_hands_it_on():
    said = {"reasoning": "", "write_operations": [], "edit_operations": [], "delete_operations": []}
    summary = {"topic": "A cat", "abstract": "The user showed a cat."}
    options = {"api_key": "key", "model": "some-model", "structured_output": "on", "tools": "on"}
    with MessagesApi() as api:
        api.script(answer(described), answer(said | {"summary": summary}), answer(said | {"summary": summary}))
        engine = ModelEngine(AnthropicSettings(base_url=api.url, **options), max_retries=0)
        try:
            outputs = [await engine.extract(shown(DATA)) for _ in range(2)]
        finally:
            await engine.close()
    for output in outputs:
        assert [one.text for one in output.image_descriptions] == ["A cat, 1."]
    looked, *told = api.calls
    assert len(images_in(looked)) == 1
    assert len(told) == 2, "the second attempt looks at nothing again"
    for call in told:
        assert '[Image] {"caption": "A cat, 1."' in call.last_text
