"""A hook of MkDocs: checks links that leave docs/, and turns them into links to the repository, or into plain text."""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\((\.\./[^)\s#]*)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Returns the page with its links to files outside docs/ resolved. Raises PluginError for a missing file."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def resolved(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        path = Path(os.path.normpath(folder / target))
        if path.is_relative_to(ROOT / "docs"):
            return link[0]
        if not path.exists():
            raise PluginError(f"{page.file.src_uri}: {target} does not exist")
        if not config.repo_url:
            return text
        kind = "tree" if path.is_dir() else "blob"
        return f"[{text}]({config.repo_url.rstrip('/')}/{kind}/main/{path.relative_to(ROOT).as_posix()}{anchor})"

    return _LINK.sub(resolved, markdown)
