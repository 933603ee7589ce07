"""The reranker `fastembed`, which needs the package of that name: `make test-embedders`.

No trained cross-encoder comes in a package, so the model is one that this test writes: an ONNX graph with the inputs
and the output of one, whose score is the number of tokens that query and text share. It proves that a model loads from
a folder and is called as it should be; it says nothing about quality.
"""

import asyncio
import shutil
import socket
from pathlib import Path

import pytest

from runekeep_storage.embedders import minilm
from runekeep_storage.rerankers import RerankerUnavailable, RerankOptions, open_reranker

pytestmark = pytest.mark.embedders

TEXTS = ("Tax forms are due in April", "The dog sleeps", "My dog loves the park") * 6
QUERY = "Which dog loves the park?"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that an air-gapped site copies: a model of shared tokens and the tokenizer of MiniLM."""
    write_model(tmp_path / "model.onnx")
    shutil.copy(minilm.TOKENIZER_PATH, tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 256, "pad_token": "[PAD]"}')
    return tmp_path


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a model in a folder needs no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def write_model(file: Path) -> None:
    """Writes a graph that counts pairs of equal tokens, one of the query and one of the text, padding left out."""
    from onnx import TensorProto, checker, helper, save

    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in names]
    axes = {
        name: helper.make_tensor(name, TensorProto.INT64, [len(at)], at)
        for name, at in {"one": [1], "two": [2], "both": [1, 2]}.items()
    }
    nodes = [
        helper.make_node("Unsqueeze", ["input_ids", "two"], ["of_query"]),
        helper.make_node("Unsqueeze", ["input_ids", "one"], ["of_text"]),
        helper.make_node("Equal", ["of_query", "of_text"], ["equal"]),
        helper.make_node("Cast", ["equal"], ["same"], to=TensorProto.INT64),
        # Tokens of the text have the type 1; those of the query, and padding, have 0.
        helper.make_node("Sub", ["attention_mask", "token_type_ids"], ["is_query"]),
        helper.make_node("Unsqueeze", ["is_query", "two"], ["query_rows"]),
        helper.make_node("Unsqueeze", ["token_type_ids", "one"], ["text_columns"]),
        helper.make_node("Mul", ["same", "query_rows"], ["kept_rows"]),
        helper.make_node("Mul", ["kept_rows", "text_columns"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "both"], ["shared"], keepdims=0),
        helper.make_node("Unsqueeze", ["shared", "one"], ["column"]),
        helper.make_node("Cast", ["column"], ["logits"], to=TensorProto.FLOAT),
    ]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1])
    graph = helper.make_graph(nodes, "shared-tokens", inputs, [output], list(axes.values()))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    checker.check_model(model)
    save(model, str(file))


@pytest.mark.parametrize("name", ["Xenova/ms-marco-MiniLM-L-6-v2", "acme/shared-tokens"])
async def test_a_known_and_an_unknown_model_run_from_a_folder(folder: Path, no_network: None, name: str) -> None:
    if name.startswith("Xenova"):
        # fastembed expects the file of a model that it knows where that model's repository has it.
        (folder / "onnx").mkdir()
        (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    reranker = open_reranker("fastembed", options=RerankOptions(model=name, path=folder, seconds=20))
    assert reranker is not None
    try:
        await reranker.warm()
        tax, sleeps, park = (await reranker.rerank(QUERY, TEXTS))[:3]
        assert tax < sleeps < park
        scores = await asyncio.gather(*(reranker.rerank(QUERY, TEXTS) for _ in range(4)))
        assert scores == [[tax, sleeps, park] * 6] * 4
    finally:
        await reranker.close()
    with pytest.raises(RerankerUnavailable, match="closed"):
        await reranker.rerank(QUERY, TEXTS)


@pytest.mark.parametrize(
    ("model", "is_there", "message"),
    [
        ("acme/nowhere", False, "rerank.path must name its folder"),
        ("acme/not-a-model", True, "cannot be loaded"),
    ],
)
async def test_it_says_what_is_wrong(tmp_path: Path, model: str, is_there: bool, message: str) -> None:
    path = tmp_path if is_there else None
    reranker = open_reranker("fastembed", options=RerankOptions(model=model, path=path))
    assert reranker is not None
    with pytest.raises(RerankerUnavailable, match=message):
        await reranker.warm()
    await reranker.close()
