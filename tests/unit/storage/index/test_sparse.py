"""Terms and their weights."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep_storage.index.sparse import MAX_TERMS, SparseVector, encode_document, encode_query


def shared(left: str, right: str) -> int:
    """How many terms two texts have in common."""
    return len(set(encode_query(left).indices) & set(encode_query(right).indices))


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("She was painting sunsets", "sunset painted"),
        ("CAFÉ", "café"),
        ("ｆｕｌｌ ｗｉｄｔｈ", "full width"),
        ("snake_case-name", "snake name case"),
        ("Caroline's dogs", "caroline dog"),
        ("в Москве зимой", "зимой москве"),
        ("हिन्दी में", "हिन्दी"),
    ],
)
def test_forms_of_a_word_meet(said: str, asked: str) -> None:
    assert shared(said, asked) == len(encode_query(asked).indices) > 0


def test_combining_marks_do_not_cut_words() -> None:
    assert len(encode_query("हिन्दी").indices) == 1


def test_scripts_without_spaces_become_characters_and_pairs() -> None:
    assert len(encode_query("东京塔").indices) == 3 + 2
    assert shared("我昨天去了东京塔", "东京") == 3
    assert shared("ฉันชอบกาแฟ", "กาแฟ") > 3
    assert shared("抹茶latte", "latte") == 1
    # A pair does not reach over what separates.
    assert len(encode_query("东，京").indices) == 2


@pytest.mark.parametrize("text", ["", "   ", "?!…", "What is it?", "don't", "\u2028\x00"])
def test_texts_without_terms_are_empty(text: str) -> None:
    assert encode_query(text) == encode_document(text) == SparseVector((), ())


def test_a_query_counts_a_term_once() -> None:
    assert encode_query("tea tea tea") == encode_query("tea")
    assert encode_query("tea").values == (1.0,)


def test_a_query_has_the_terms_of_its_beginning() -> None:
    words = [f"word{number}" for number in range(1000)]
    first = encode_query(" ".join(words[:MAX_TERMS]))

    assert len(first.indices) == MAX_TERMS
    assert encode_query(" ".join(words)) == first
    assert encode_query("tea " * 1000 + " ".join(words[: MAX_TERMS - 1])) != first, "repeated ones take no place"
    assert len(encode_document(" ".join(words)).indices) == 1000


def test_a_long_query_without_spaces_keeps_pairs_too() -> None:
    han = "".join(chr(0x4E00 + number) for number in range(4000))

    assert len(encode_query(han).indices) == MAX_TERMS
    assert set(encode_query(han[:32]).indices) < set(encode_query(han).indices)


def test_a_document_follows_the_formula() -> None:
    vector = encode_document("tea tea kettle")

    weights = dict(zip(vector.indices, vector.values, strict=True))
    (tea,), (kettle,) = encode_query("tea").indices, encode_query("kettle").indices
    norm = 1.2 * (0.25 + 0.75 * 3 / 256)
    assert weights == {
        tea: pytest.approx(2 * 2.2 / (2 + norm), rel=1e-6),
        kettle: pytest.approx(2.2 / (1 + norm), rel=1e-6),
    }


def test_longer_documents_weigh_a_term_less() -> None:
    (alone,) = encode_document("tea").values
    assert min(encode_document("tea " + "kettle " * 50).values) < alone


@given(st.text())
def test_every_text_gives_a_sound_vector_that_survives_bytes(text: str) -> None:
    for vector in (encode_document(text), encode_query(text)):
        assert list(vector.indices) == sorted(set(vector.indices))
        assert all(0 <= index < 2**32 for index in vector.indices)
        assert all(value > 0 for value in vector.values)
        assert SparseVector.from_bytes(vector.to_bytes()) == vector


def test_half_a_term_is_refused() -> None:
    with pytest.raises(ValueError, match="8 bytes a term"):
        SparseVector.from_bytes(encode_query("tea").to_bytes()[:-1])


def test_term_numbers_are_the_same_in_every_process() -> None:
    program = "from runekeep_storage.index.sparse import encode_query; print(encode_query('tea kettle 东京').indices)"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert printed == {str(encode_query("tea kettle 东京").indices)}


def test_threads_do_not_garble_each_others_stems() -> None:
    words = [f"{start}{end}" for start in ("paint", "walk", "jump", "talk") for end in ("ing", "ed", "s", "er")]
    texts = [f"{word} {number}x{word}" for word in words for number in range(50)]
    alone = [encode_document(text) for text in texts]

    from runekeep_storage.index import sparse

    sparse._word_number.cache_clear()
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(encode_document, texts)) == alone
