"""Endpoints of embedder and reranker by account, so that texts of one account go to no endpoint of another."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    SecretStr,
    Tag,
    field_validator,
    model_validator,
)

from runekeep_common.secret_files import SecretFileError, read_secret
from runekeep_schemas.documents.uris import IdKind, is_safe_id
from runekeep_server.settings.fields import none_if_empty
from runekeep_server.settings.groups import ENDPOINT_URL

DEFAULT, NONE = "default", "none"
"""Words in place of an endpoint: that of the accounts without an entry, and, for a reranker, none at all."""
KINDS: Mapping[str, str] = {
    "embedding": "embedding.url",
    "next_embedding": "next_embedding.url",
    "rerank": "rerank.url",
}
"""The kinds of endpoints, with the setting of the default one."""
TAG = "<"
"""Begins parts of the places of errors that are not in the settings."""


class AccountEndpoint(BaseModel):
    """An endpoint of one account. The key is in a file or in a variable of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    key_file: Annotated[Path | None, BeforeValidator(none_if_empty)] = None
    key_env: str = ""
    _key: SecretStr = PrivateAttr(SecretStr(""))

    @property
    def key(self) -> str:
        """The key; empty for none."""
        return self._key.get_secret_value()

    @field_validator("url")
    @classmethod
    def _url_is_web(cls, value: str) -> str:
        if not ENDPOINT_URL.fullmatch(value):
            raise ValueError("must be a URL such as https://api.openai.com/v1, without a key: that is key_file")
        return value

    @model_validator(mode="after")
    def _has_its_key(self) -> "AccountEndpoint":
        if self.key_file is not None and self.key_env:
            raise ValueError("has key_file and key_env; leave one of them out")
        if self.key_file is not None:
            try:
                self._key = SecretStr(read_secret("key_file", self.key_file))
            except SecretFileError as error:
                raise ValueError(str(error)) from None
        if self.key_env:
            if not os.environ.get(self.key_env):
                raise ValueError(f"key_env: the variable {self.key_env} is not set")
            self._key = SecretStr(os.environ[self.key_env])
        return self


class AccountEmbedder(AccountEndpoint):
    """`model`: what the endpoint serves. After a change of the embedder `embedding` and `next_embedding` change places;
    if that is forgotten in an entry, its model no longer fits, and no text is sent to the wrong endpoint."""

    model: str = Field(min_length=1, max_length=200)


class AccountReranker(AccountEndpoint):
    """Rerankers of accounts need not be the same model: their scores are not compared."""

    model: str = Field(default="", max_length=200)
    """Empty: `rerank.model`."""
    form: Literal["auto", "jina", "cohere", "tei"] = "auto"


def _is_word(value: str) -> str:
    if value not in (DEFAULT, NONE):
        raise ValueError(f"must be an endpoint with a `url`, `{DEFAULT}` or `{NONE}`")
    return value


def _is_default(value: str) -> str:
    if value != DEFAULT:
        raise ValueError(f"must be an endpoint with a `url`, or `{DEFAULT}`")
    return value


_Word = Annotated[str, AfterValidator(_is_word), Tag(f"{TAG}word")]
_DefaultWord = Annotated[str, AfterValidator(_is_default), Tag(f"{TAG}word")]
_tag = Discriminator(lambda value: f"{TAG}word" if isinstance(value, str) else f"{TAG}endpoint")
_Embedder = Annotated[Annotated[AccountEmbedder, Tag(f"{TAG}endpoint")] | _DefaultWord, _tag]
_Reranker = Annotated[Annotated[AccountReranker, Tag(f"{TAG}endpoint")] | _Word, _tag]


class AccountEndpoints(BaseModel):
    """Where texts of one account are sent to. Each kind that the server uses must be there: a forgotten one would send
    texts to the endpoint of all other accounts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    embedding: _Embedder | None = None
    next_embedding: _Embedder | None = None
    rerank: _Reranker | None = None


def _account_ids(value: dict[str, AccountEndpoints]) -> dict[str, AccountEndpoints]:
    if wrong := next((account for account in value if not is_safe_id(IdKind.ACCOUNT, account)), None):
        raise ValueError(f"{wrong!r} cannot be the id of an account")
    return value


EndpointsByAccount = Annotated[dict[str, AccountEndpoints], AfterValidator(_account_ids)]


def endpoints_of(accounts: Mapping[str, AccountEndpoints], kind: str) -> dict[str, AccountEndpoint | None]:
    """Returns the endpoints of a kind by account, without accounts that have the default one; None for none."""
    found = {account: getattr(entry, kind) for account, entry in accounts.items()}
    return {account: None if one == NONE else one for account, one in found.items() if one not in (None, DEFAULT)}


def faults(
    accounts: Mapping[str, AccountEndpoints],
    defaults: Mapping[str, str],
    models: Mapping[str, str],
    used: set[str],
) -> Iterator[str]:
    """Yields what is wrong. `defaults`: URLs of the default endpoints by kind; `models`: those of embedders; `used`:
    kinds that the server uses."""
    for account, entry in accounts.items():
        for kind, setting in KINDS.items():
            given = getattr(entry, kind)
            if given is None and kind in used:
                yield f"account {account} lacks `{kind}`: give an endpoint, or `{DEFAULT}`, which is {setting}"
            elif given is not None and kind not in used:
                yield f"account {account} has `{kind}`, which this server does not use: leave it out"
            elif given == DEFAULT and not defaults[kind]:
                yield f"`{kind}` of account {account} is `{DEFAULT}`, but {setting} is empty"
            elif isinstance(given, AccountEmbedder) and given.model != models[kind]:
                yield (
                    f"`{kind}` of account {account} serves the model {given.model!r}, but {kind}.model is"
                    f" {models[kind]!r}: do `embedding` and `next_embedding` have to change places?"
                )
