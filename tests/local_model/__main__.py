"""The whole pipeline against a real small model on this machine: `make test-local-model`.

One commit through the Messages API as llama.cpp serves it, without structured output, one with a shim that adds it, and
one through the Chat Completions API, where llama.cpp has structured output. In the run `outage` llama.cpp is killed
amid its answer to a commit and started again. In the last run it is the embedder too.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.acceptance.processes import processes
from tests.local_model import commit, embeddings, outage
from tests.local_model.model import NAME, model_server
from tests.local_model.shim import Shim

COMMITS = {
    "messages": ("the Messages API as llama.cpp serves it", False),
    "shim": ("the Messages API with structured output by the shim", True),
    "chat": ("the Chat Completions API as llama.cpp serves it", True),
}
"""By name: what the model is asked through, and whether that has structured output."""
FURTHER = {
    "outage": ("behind /v1/chat/completions of llama.cpp, which is killed amid its answer", outage.run),
    "embeddings": ("behind /v1/chat/completions and /v1/embeddings of llama.cpp", embeddings.run),
}
"""By name: what is printed above a run, and the run."""


def main(names: Sequence[str]) -> int:
    for name in names or (*COMMITS, *FURTHER):
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
            processes(Path(directory)) as fleet,
        ):
            if name in FURTHER:
                title, run = FURTHER[name]
                print(f"\n== {NAME} {title}", flush=True)
                run(fleet)
                continue
            title, structured = COMMITS[name]
            print(f"\n== {NAME} through {title}", flush=True)
            with model_server() as address, Shim(address, structured) as shim:
                commit.run(fleet, shim, chat=name == "chat")
    print("\nAll that was asserted held.")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main(sys.argv[1:]))
