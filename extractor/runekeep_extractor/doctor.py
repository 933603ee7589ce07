"""Checks whether an extractor can reach its model: `python -m runekeep_extractor.doctor [--model-call]`.

Prints one JSON object with `checks` in the form of `runekeep_server.doctor`. It calls the model only with
`--model-call`, because a call costs money.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from time import monotonic

from pydantic import ValidationError

from runekeep_common.secret_files import SecretFileError
from runekeep_extractor.engine.interface import JobFailed, NotConfigured
from runekeep_extractor.providers.budget import total
from runekeep_extractor.providers.errors import NoAnswerInTime, ServerError
from runekeep_extractor.providers.interface import MAX_TOKENS, Provider, Question, UserTurn
from runekeep_extractor.providers.opening import open_provider
from runekeep_extractor.settings import ExtractorSettings, ModelSettings

REACH_SECONDS = 5.0
_CALL_SECONDS = 60.0
_ANSWER_TOKENS = 16

Said = dict[str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns exit code 1 if there is a problem."""
    parser = argparse.ArgumentParser(prog="python -m runekeep_extractor.doctor", description=__doc__)
    parser.add_argument("--model-call", action="store_true", help="ask the model for a word")
    flags = parser.parse_args(arguments)
    found = asyncio.run(_examine(model_call=flags.model_call))
    print(json.dumps({"checks": found}))
    return 1 if any(check["state"] == "problem" for check in found) else 0


async def _examine(*, model_call: bool) -> list[Said]:
    try:
        settings = ExtractorSettings()
    except ValidationError as error:
        # Without the values: one of them may be a key.
        wrong = "; ".join(
            f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_input=False)
        )
        return [_check("model.settings", "problem", wrong, "Mend them: docs/reference/extractor-settings.md.")]
    except SecretFileError as error:
        return [_check("model.settings", "problem", str(error), "Mend them: docs/reference/extractor-settings.md.")]
    keys = [model.api_key.get_secret_value() for model in (settings.anthropic, settings.openai) if model.api_key]
    secrets = [secret for secret in (*keys, os.environ.get("ANTHROPIC_AUTH_TOKEN", "")) if secret]
    found = [check async for check in _checks(settings, model_call=model_call)]
    return [{name: _plain(text, secrets) for name, text in check.items()} for check in found]


def _plain(text: str, secrets: Sequence[str]) -> str:
    """Returns the text on one line, without keys and tokens, which a server may repeat in its refusal."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return " ".join(text.split())


async def _checks(settings: ExtractorSettings, *, model_call: bool) -> AsyncIterator[Said]:
    model = settings.models
    if model is None:
        yield _check("model.settings", "ok", "engine `offline`: no model is asked")
        return
    try:
        provider = open_provider(model.model_copy(update={"timeout": min(model.timeout, _CALL_SECONDS)}), max_retries=0)
    except NotConfigured as error:
        yield _check("model.settings", "problem", str(error), "Mend them: docs/operate/models.md.")
        return
    given = "a key" if model.api_key is not None else "no key"
    yield _check("model.settings", "ok", f"{provider.name}: {model.model}, with {given}")
    reached = await _reach(provider, model)
    yield reached
    if not model_call:
        yield _check("model.call", "skipped", "it costs a little: --model-call asks the model for a word")
    elif reached["state"] == "ok":
        yield await _call(provider, model)
    await provider.close()


async def _reach(provider: Provider, model: ModelSettings) -> Said:
    """Checks that the server answers; any answer counts."""
    import httpx2

    host = httpx2.URL(provider.base_url).host
    began = monotonic()
    try:
        async with httpx2.AsyncClient(timeout=REACH_SECONDS, follow_redirects=True) as http:
            await http.get(provider.base_url)
    except httpx2.HTTPError as error:
        return _check(
            "model.reachable",
            "problem",
            f"{host}: {str(error) or type(error).__name__}",
            f"Check {model.url_variable}, the network, and the proxy that HTTPS_PROXY names.",
        )
    return _check("model.reachable", "ok", f"{host} answers in {(monotonic() - began) * 1000:.0f} ms")


async def _call(provider: Provider, model: ModelSettings) -> Said:
    features = provider.features()
    question = Question(model.model, [UserTurn(["Say yes."])], _ANSWER_TOKENS)
    began = monotonic()
    try:
        try:
            answer = await provider.send(provider.request(question, {MAX_TOKENS} & features.keys()), _ignore)
        except ServerError as error:
            if MAX_TOKENS not in features or not features[MAX_TOKENS].is_probable_cause_of(error):
                raise
            answer = await provider.send(provider.request(question, ()), _ignore)
    except ServerError as error:
        advice = {
            401: f"Check {model.key_variable}: the server refuses it.",
            403: "Check what the key may do.",
            404: "Check RUNEKEEP_EXTRACTOR_MODEL: the server has no such model.",
            429: "The account's limits are reached: wait, or raise them.",
        }.get(error.status, "See the log of the model server, and try again.")
        return _check("model.call", "problem", f"{model.model}: status {error.status}, {error.message}", advice)
    except (JobFailed, NoAnswerInTime) as error:
        told = str(error) or "no answer in time"
        return _check("model.call", "problem", f"{model.model}: {told}", "See the log of the model server.")
    took = (monotonic() - began) * 1000
    return _check("model.call", "ok", f"{model.model} answered in {took:.0f} ms, for {total(answer.usage)} tokens")


def _ignore() -> None:
    """The answer is too short to be streamed."""


def _check(name: str, state: str, found: str, advice: str = "") -> Said:
    return {"check": name, "state": state, "found": found, "do": advice}


if __name__ == "__main__":
    sys.exit(main())
