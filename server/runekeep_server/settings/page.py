"""The page about every setting, made from what the settings say of themselves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class Described:
    """A setting: its dotted name, its variable in the environment, its heading, and what is declared of it."""

    name: str
    variable: str
    section: str
    field: FieldInfo


def page(settings: Sequence[Described], config_variable: str, secret_files: Sequence[str]) -> str:
    """Markdown, a table a heading; settings of one heading stand together. `config_variable` names the file's,
    `secret_files` those of files with one secret each."""
    lines = [
        "# Settings of the server",
        "",
        "<!-- Printed by `python -m runekeep_server.settings`; change server/runekeep_server/settings/ instead. -->",
        "",
        "Strongest first: the flags of `runekeep serve` (`--address`, `--data-dir`,",
        "`--accept-data-loss`), the environment, the YAML file",
        f"that `--config` or `{config_variable}` names. In the file a dotted name is a nested mapping. Times are in",
        "seconds and may have fractions. A value out of bounds stops the server at start, and so does a name in the",
        "file that is no setting; a variable that looks like a misspelled setting is warned of in the log.",
        "",
        "A secret may be in a file of its own, such as one that Docker or Kubernetes mounts. Name the file in one of",
        f"{', '.join(f'`{name}`' for name in secret_files)}.",
        "Then the secret is not in the environment, which child processes inherit and `/proc` shows.",
    ]
    current = None
    for one in settings:
        if one.section != current:
            current = one.section
            lines += ["", f"## {current}", "", "| Setting | Environment | Default | May be | Meaning |"]
            lines.append("|---|---|---|---|---|")
        told = (f"`{one.name}`", f"`{one.variable}`", _default(one.field), _range(one.field), one.field.description)
        lines.append(f"| {' | '.join(map(str, told))} |")
    return "\n".join(lines) + "\n"


def _default(info: FieldInfo) -> str:
    value = info.default.get_secret_value() if isinstance(info.default, SecretStr) else info.default
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}`" if value not in ("", (), None) else "empty"


def _range(info: FieldInfo) -> str:
    if get_origin(info.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(info.annotation))
    bounds = [f"{word} {bound:g}" if isinstance(bound, float) else f"{word} {bound}"
              for item in info.metadata
              for word, bound in (
                  ("above", getattr(item, "gt", None)),
                  ("from", getattr(item, "ge", None)),
                  ("to", getattr(item, "le", None)),
              )
              if bound is not None]  # fmt: skip
    if info.annotation in (bool, bool | None):
        return "`true`, `false`"
    return " ".join(bounds)
