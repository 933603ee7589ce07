"""Whether the model that an extractor would ask can be had: `python -m extractor.doctor [--model-call]`.

One JSON object on standard output, `checks` as `server.doctor` gives them. A call of the model costs, if little, so it
is made only when it is asked for.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from time import monotonic

from pydantic import ValidationError

from extractor.settings import AnthropicSettings, ExtractorSettings
from schemas.secret_files import SecretFileError

REACH_SECONDS = 5.0
_CALL_SECONDS = 60.0
_DEFAULT = "https://api.anthropic.com"

Said = dict[str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when there is a problem."""
    parser = argparse.ArgumentParser(prog="python -m extractor.doctor", description=__doc__)
    parser.add_argument("--model-call", action="store_true", help="ask the model for one token")
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
        return [_check("model.settings", "problem", wrong, "Mend them: docs/extractor-settings.md.")]
    except SecretFileError as error:
        return [_check("model.settings", "problem", str(error), "Mend them: docs/extractor-settings.md.")]
    key = settings.anthropic.api_key.get_secret_value() if settings.anthropic.api_key else ""
    secrets = [secret for secret in (key, os.environ.get("ANTHROPIC_AUTH_TOKEN", "")) if secret]
    found = [check async for check in _checks(settings, model_call=model_call)]
    return [{name: _plain(text, secrets) for name, text in check.items()} for check in found]


def _plain(text: str, secrets: Sequence[str]) -> str:
    """On one line, and without keys and tokens, which a server may repeat in its refusal."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return " ".join(text.split())


async def _checks(settings: ExtractorSettings, *, model_call: bool) -> AsyncIterator[Said]:
    if settings.chosen_engine == "offline":
        yield _check("model.settings", "ok", "engine `offline`: no model is asked")
        return
    model = settings.anthropic
    if not model.configured and "ANTHROPIC_AUTH_TOKEN" not in os.environ:
        yield _check(
            "model.settings", "problem", "neither a key nor a base URL is set", "Set ANTHROPIC_API_KEY, or a base URL."
        )
        return
    given = "a key" if model.api_key is not None else "no key"
    yield _check("model.settings", "ok", f"{model.model}, with {given}")
    reached = await _reach(model)
    yield reached
    if not model_call:
        yield _check("model.call", "skipped", "it costs a little: --model-call asks the model for one token")
    elif reached["state"] == "ok":
        yield await _call(model)


async def _reach(model: AnthropicSettings) -> Said:
    """Whatever the server answers: it is there."""
    import anthropic

    base = model.base_url or _DEFAULT
    began = monotonic()
    async with anthropic.DefaultAsyncHttpxClient(timeout=REACH_SECONDS) as http:
        try:
            host = http.build_request("GET", base).url.host
        except Exception:  # Its text quotes pieces of the URL, which may be of a password.
            return _check(
                "model.reachable",
                "problem",
                "the base URL cannot be read",
                "Mend ANTHROPIC_BASE_URL; write special characters of a password in percent notation.",
            )
        try:
            await http.get(base)
        except Exception as error:  # Of the HTTP library, whose name is the SDK's business.
            return _check(
                "model.reachable",
                "problem",
                f"{host}: {str(error) or type(error).__name__}",
                "Check ANTHROPIC_BASE_URL, the network, and the proxy that HTTPS_PROXY names.",
            )
    return _check("model.reachable", "ok", f"{host} answers in {(monotonic() - began) * 1000:.0f} ms")


async def _call(model: AnthropicSettings) -> Said:
    import anthropic

    key = model.api_key.get_secret_value() if model.api_key is not None else None
    if key is None and "ANTHROPIC_AUTH_TOKEN" not in os.environ:
        # The SDK refuses to call without credentials, and a server of one's own often needs none.
        key = "none"
    began = monotonic()
    try:
        async with anthropic.AsyncAnthropic(
            api_key=key, base_url=model.base_url, timeout=min(model.timeout, _CALL_SECONDS), max_retries=0
        ) as client:
            answer = await client.messages.create(
                model=model.model, max_tokens=1, messages=[{"role": "user", "content": "Say yes."}]
            )
    except anthropic.APIStatusError as error:
        advice = {
            401: "Check ANTHROPIC_API_KEY: the server refuses it.",
            403: "Check what the key may do.",
            404: "Check RUNEKEEP_EXTRACTOR_MODEL: the server has no such model.",
            429: "The account's limits are reached: wait, or raise them.",
        }.get(error.status_code, "See the log of the model server, and try again.")
        return _check("model.call", "problem", f"{model.model}: status {error.status_code}, {error.message}", advice)
    except anthropic.AnthropicError as error:
        return _check("model.call", "problem", f"{model.model}: {error}", "See the log of the model server.")
    spent = answer.usage.input_tokens + answer.usage.output_tokens
    took = (monotonic() - began) * 1000
    return _check("model.call", "ok", f"{model.model} answered in {took:.0f} ms, for {spent} tokens")


def _check(name: str, state: str, found: str, advice: str = "") -> Said:
    return {"check": name, "state": state, "found": found, "do": advice}


if __name__ == "__main__":
    sys.exit(main())
