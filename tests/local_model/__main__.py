"""The whole pipeline against a real small model on this machine: `make test-local-model`.

One commit through the Messages API as llama.cpp serves it, without structured output, one with a shim that adds it, and
one through the Chat Completions API, where llama.cpp has structured output. In the last run llama.cpp is the embedder
too, and is killed and started again.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.acceptance.processes import processes
from tests.local_model import commit, embeddings
from tests.local_model.model import NAME, model_server
from tests.local_model.shim import Shim

COMMITS = {
    "messages": ("the Messages API as llama.cpp serves it", False),
    "shim": ("the Messages API with structured output by the shim", True),
    "chat": ("the Chat Completions API as llama.cpp serves it", True),
}
"""By name: what the model is asked through, and whether that has structured output."""
EMBEDDINGS = "embeddings"


def main(names: Sequence[str]) -> int:
    for name in names or (*COMMITS, EMBEDDINGS):
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
            processes(Path(directory)) as fleet,
        ):
            if name == EMBEDDINGS:
                print(f"\n== {NAME} behind /v1/chat/completions and /v1/embeddings of llama.cpp", flush=True)
                embeddings.run(fleet)
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
