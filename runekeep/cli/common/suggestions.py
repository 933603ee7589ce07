"""Names the command that was probably meant, when there is no command of a given name."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final

from typer.core import TyperGroup

MAX_SUGGESTIONS: Final = 3
_SYNONYMS: Final = {
    "add": ("create", "write", "ingest"),
    "cat": ("read",),
    "forget": ("delete", "erase"),
    "get": ("show", "read"),
    "info": ("show",),
    "list": ("ls",),
    "ls": ("list",),
    "new": ("create",),
    "remember": ("write", "ingest"),
    "remove": ("delete", "revoke"),
    "rm": ("delete", "revoke"),
    "run": ("up", "serve"),
    "search": ("find",),
    "server": ("serve",),
    "show": ("read",),
    "start": ("up", "serve"),
    "status": ("show", "health"),
    "undo": ("rollback",),
    "view": ("show", "read"),
    "worker": ("extractor",),
}
"""Names that other programs have for a command, and ours."""


class SuggestingGroup(TyperGroup):
    """A group of commands that says which command a wrong name probably means: `runekeep find` is `runekeep memory
    find`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            root = ctx.find_root()
            here = ctx.command_path.split()[1:]
            meant = _meant(root.command, here, args[0])
            named = " or ".join(f"`{root.info_name} {path}`" for path in meant[:MAX_SUGGESTIONS])
            ctx.fail(f"No such command `{args[0]}`." + (f" Did you mean {named}?" if meant else ""))
        return super().resolve_command(ctx, args)


def _meant(root: Any, here: list[str], name: str) -> list[str]:
    """Returns the commands that `name` may mean in the group `here`, best first: those of the group that go by another
    name, those of the same name in other groups, and those with a similar name."""
    every = list(_commands(root))
    of_group = [path for path in every if path[:-1] == here]
    synonyms = [*_SYNONYMS.get(name, ()), f"{name}s", name.removesuffix("s")]
    found = [path for word in synonyms for path in of_group if path[-1] == word]
    if not here or not found:
        named = dict.fromkeys([name, *synonyms])
        found += [path for word in named for path in every if path[-1] == word and path not in found]
    if not found:
        near = get_close_matches(name, [path[-1] for path in of_group])
        found = [path for word in near for path in of_group if path[-1] == word]
    if not found:
        near = get_close_matches(name, {path[-1] for path in every})
        found = [path for word in near for path in every if path[-1] == word]
    return [" ".join(path) for path in found]


def _commands(group: Any, above: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """Yields the paths of all commands and groups below a group."""
    for name, command in group.commands.items():
        if not command.hidden:
            yield [*above, name]
        if isinstance(command, TyperGroup):
            yield from _commands(command, (*above, name))
