"""The languages that each embedder was made for."""

from typing import Final

from runekeep_storage.embedders.options import EmbeddingOptions

_BUILT_IN: Final = {
    "minilm": frozenset({"en"}),
    # Those of the Universal Sentence Encoder, and MiniLM's.
    "bilingual": frozenset("ar de en es fr it ja ko nl pl pt ru th tr zh".split()),
}


def known_languages(name: str, options: EmbeddingOptions) -> frozenset[str] | None:
    """Returns the languages of the embedder of that name, as codes of ISO 639. None if nobody knows them, as of a model
    of `openai` or `fastembed` whose description names none, and for `none`. `options`: the description."""
    if name == "none":
        return None
    languages: frozenset[str] = frozenset()
    for part in name.split("+"):
        known = _BUILT_IN.get(part, frozenset(options.languages))
        if not known:
            return None
        languages |= known
    return languages
