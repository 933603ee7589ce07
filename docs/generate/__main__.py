"""Writes the generated pages of docs/reference and other files, or checks that they are current.

python -m docs.generate            write
python -m docs.generate --check    exit 1 and name the files that differ
"""

import argparse
import sys
from pathlib import Path

from docs.generate import architecture, cli, contract, error_reasons, methods, metrics, openapi, python_client, rooms
from runekeep_extractor.settings import to_markdown as extractor_settings
from runekeep_server.settings import reference as server_settings

ROOT = Path(__file__).resolve().parents[2]


def pages() -> dict[str, str]:
    """Returns every generated file as text, by its path from the root."""
    return {
        **{f"docs/reference/contract/{name}": text for name, text in contract.pages().items()},
        "docs/reference/python.md": python_client.page(),
        "docs/reference/python-results.md": python_client.results_page(),
        "docs/reference/cli.md": cli.page(),
        "docs/reference/settings.md": server_settings(),
        "docs/reference/extractor-settings.md": extractor_settings(),
        "docs/reference/errors.md": error_reasons.page(),
        "docs/reference/methods.md": methods.page(),
        "docs/reference/metrics.md": metrics.page(),
        "docs/pictures/architecture.svg": architecture.picture(),
        "docs/pictures/rooms.svg": rooms.picture(),
        "runekeep/http_api/openapi.json": openapi.description(),
        "deploy/service-config.json": methods.service_config(),
        # A Go module holds the files that it embeds.
        "clients/go/service-config.json": methods.service_config(),
    }


def outdated(made: dict[str, str]) -> list[str]:
    """Returns the paths whose committed text differs from `made`, and those of pages that are no longer generated."""
    differing = [path for path, text in made.items() if not _holds(ROOT / path, text)]
    present = {str(page.relative_to(ROOT)) for page in (ROOT / "docs" / "reference" / "contract").glob("*.md")}
    return sorted([*differing, *(present - made.keys())])


def _holds(file: Path, text: str) -> bool:
    return file.exists() and file.read_text(encoding="utf-8") == text


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m docs.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    made = pages()
    for path in outdated(made):
        if check:
            print(f"outdated: {path}; run `make reference`", file=sys.stderr)
        elif path in made:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(made[path], encoding="utf-8")
        else:
            (ROOT / path).unlink()
    return 1 if check and outdated(made) else 0


if __name__ == "__main__":
    sys.exit(main())
