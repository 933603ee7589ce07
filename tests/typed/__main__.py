"""Checks with mypy that the Python client is typed: what `application.py` says, and the samples of docstrings.
`make check` runs `python -m tests.typed`; `tests/languages/test_pyright.py` does the same with pyright."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from mypy import api

from tests.typed.samples import as_module

HERE = Path(__file__).parent


def main() -> int:
    with TemporaryDirectory() as folder:
        shown = Path(folder) / "samples.py"
        shown.write_text(as_module(), encoding="utf-8")
        said, errors, status = api.run(["--no-warn-unused-configs", str(HERE / "application.py"), str(shown)])
    print(said + errors, end="")
    return status


if __name__ == "__main__":
    sys.exit(main())
