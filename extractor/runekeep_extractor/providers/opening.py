"""Opens the provider that the settings name. Its module imports its SDK, which takes one to three seconds."""

from runekeep_extractor.engine.interface import NotConfigured
from runekeep_extractor.providers.interface import Provider
from runekeep_extractor.settings import AnthropicSettings, ModelSettings, OpenAISettings


def open_provider(settings: ModelSettings, max_retries: int) -> Provider:
    """Returns the provider, without loading the SDK of another one. Raises NotConfigured.

    `max_retries`: retries by the SDK, for rate limits, overload and broken connections.
    """
    import httpx2

    try:
        return _open(settings, max_retries)
    except httpx2.InvalidURL:
        # Its text quotes parts of the URL, which may hold a password.
        advice = "write special characters of a password in percent notation"
        raise NotConfigured(f"{settings.url_variable} cannot be read; {advice}") from None


def _open(settings: ModelSettings, max_retries: int) -> Provider:
    match settings:
        case AnthropicSettings():
            from runekeep_extractor.providers.anthropic.messages import MessagesProvider

            return MessagesProvider(settings, max_retries)
        case OpenAISettings():
            from runekeep_extractor.providers.openai.chat import ChatProvider

            return ChatProvider(settings, max_retries)
    raise AssertionError(f"no provider for {type(settings).__name__}")
