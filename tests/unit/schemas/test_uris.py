import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runekeep_schemas.documents.uris import (
    ArchiveUri,
    ForeignSpaceError,
    ParsedUri,
    Place,
    UriError,
    archive_uri,
    canonicalize,
    is_safe_id,
    memories_root,
    parse,
    parse_archive,
    peer_root,
    session_uri,
    space_root,
)

ROOT = "viking://user/alice"


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("viking://", ROOT),
        ("viking://user", ROOT),
        ("viking://user/", ROOT),
        ("viking://user/alice", ROOT),
        ("viking://user/alice/", ROOT),
        ("viking://user/.abstract.md", f"{ROOT}/.abstract.md"),
        ("viking://user/memories", f"{ROOT}/memories"),
        ("viking://user/memories/", f"{ROOT}/memories"),
        ("viking://user/memories/profile.md", f"{ROOT}/memories/profile.md"),
        ("viking://user/memories/preferences/.overview.md", f"{ROOT}/memories/preferences/.overview.md"),
        ("viking://user/alice/memories/profile.md", f"{ROOT}/memories/profile.md"),
        ("viking://user/sessions/s1", f"{ROOT}/sessions/s1"),
        ("viking://user/sessions/s1/messages.jsonl", f"{ROOT}/sessions/s1/messages.jsonl"),
        ("viking://user/skills/search.md", f"{ROOT}/skills/search.md"),
        ("viking://user/peers/bob", f"{ROOT}/peers/bob"),
        ("viking://user/peers/bob/memories/events/a.md", f"{ROOT}/peers/bob/memories/events/a.md"),
        ("viking://session/s1", f"{ROOT}/sessions/s1"),
        ("viking://session/s1/history/archive_001", f"{ROOT}/sessions/s1/history/archive_001"),
        ("viking://agent/coder/memories/cases/a.md", f"{ROOT}/memories/cases/a.md"),
        ("viking://agent/memories/cases/a.md", f"{ROOT}/memories/cases/a.md"),
        ("viking://agent/skills/code-search", f"{ROOT}/skills/code-search"),
        ("viking://agent/coder/skills/code-search", f"{ROOT}/skills/code-search"),
        ("viking://agent/coder", ROOT),
        ("viking://user/memories/events/100%2e%2e?x#y.md", f"{ROOT}/memories/events/100%2e%2e?x#y.md"),
        ("viking://user/memories/entities/Müller 北京 → x.md", f"{ROOT}/memories/entities/Müller 北京 → x.md"),
        ("viking://user/memories/entities/Mu\u0308ller.md", f"{ROOT}/memories/entities/M\u00fcller.md"),
    ],
)
def test_canonical_form(written: str, canonical: str) -> None:
    assert canonicalize(written, "alice") == canonical
    assert canonicalize(canonical, "alice") == canonical
    assert parse(canonical).uri == canonical


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "memories/profile.md",
        "http://user/memories",
        "Viking://user/memories",
        " viking://user/memories",
        "viking:///user/memories",
        "viking:///",
        "viking://group/memories",
        "viking://user//memories",
        "viking://user/memories//a.md",
        "viking://user/memories/a.md//",
        "viking://user/memories/../sessions",
        "viking://user/alice/../bob/memories",
        "viking://user/memories/./a.md",
        "viking://user/..",
        "viking://user/memories/a\\..\\b.md",
        "viking://user/memories/a\x00.md",
        "viking://user/memories/a\nb.md",
        "viking://user/memories/a\u2028b.md",
        "viking://user/memories/a\u202eb.md",
        "viking://user/memories/a\ud800.md",
        "viking://user/memories/" + "ü" * 128,
        "viking://user/memories/" + "/".join(["a" * 100] * 30),
        "viking://user/alice/secrets",
        "viking://user/peers/-bob",
        "viking://user/peers/" + "b" * 65,
        "viking://user/peers/bob/sessions",
        "viking://user/peers/../memories",
        "viking://user/sessions/..",
        "viking://session/.hidden",
        "viking://agent/sessions/s1",
        "viking://agent/coder/sessions/s1",
        "viking://agent/a b/memories",
        "viking://agent/coder/../../memories",
    ],
)
def test_what_names_no_place_is_refused(uri: str) -> None:
    with pytest.raises(UriError) as caught:
        canonicalize(uri, "alice")
    assert not isinstance(caught.value, ForeignSpaceError)
    assert caught.value.reason


@pytest.mark.parametrize(
    "uri", ["viking://user/bob", "viking://user/bob/memories/profile.md", "viking://user/Alice/memories"]
)
def test_another_users_space_is_foreign(uri: str) -> None:
    with pytest.raises(ForeignSpaceError):
        canonicalize(uri, "alice")


@pytest.mark.parametrize("user", ["", "..", "memories", "a/b", "-a", "a\n", "ä"])
def test_unsafe_users_are_refused_everywhere(user: str) -> None:
    with pytest.raises(UriError):
        space_root(user)
    with pytest.raises(UriError):
        canonicalize("viking://", user)
    with pytest.raises(UriError):
        session_uri(user, "s")


def test_ids() -> None:
    assert is_safe_id("user", "a" * 128) and not is_safe_id("user", "a" * 129)
    assert is_safe_id("peer", "a" * 64) and not is_safe_id("peer", "a" * 65)
    assert is_safe_id("turn", "t_1.2-3") and not is_safe_id("turn", "a" * 65)
    for word in ("memories", "sessions", "peers", "skills"):
        assert not is_safe_id("user", word)
        assert is_safe_id("session", word)
    for kind in ("account", "user", "session", "peer", "turn"):
        assert is_safe_id(kind, "7")
        for bad in ("", ".", "..", ".a", "_a", "a/b", "a b", "a\n", "é", "٣"):
            assert not is_safe_id(kind, bad)


def test_builders() -> None:
    assert space_root("alice") == ROOT
    assert peer_root("alice", "bob") == f"{ROOT}/peers/bob"
    assert memories_root("alice") == f"{ROOT}/memories"
    assert memories_root("alice", "bob") == f"{ROOT}/peers/bob/memories"
    assert session_uri("alice", "s1") == f"{ROOT}/sessions/s1"
    assert archive_uri("alice", "s1", 7) == f"{ROOT}/sessions/s1/history/archive_007"
    assert archive_uri("alice", "s1", 1234) == f"{ROOT}/sessions/s1/history/archive_1234"
    with pytest.raises(UriError):
        archive_uri("alice", "s1", 0)
    with pytest.raises(UriError):
        peer_root("alice", "..")


def test_parse() -> None:
    assert parse(f"{ROOT}/peers/bob/memories/events/a.md") == ParsedUri(
        "alice", "bob", Place.MEMORIES, ("events", "a.md")
    )
    assert parse(f"{ROOT}/peers") == ParsedUri("alice", None, Place.PEERS, ())
    assert parse(f"{ROOT}/peers/bob") == ParsedUri("alice", "bob", Place.PEERS, ())
    assert parse(f"{ROOT}/sessions/s1/messages.jsonl").session == "s1"
    assert parse(f"{ROOT}/memories").session is None
    assert parse(ROOT) == ParsedUri("alice", None, Place.ROOT, ())


@pytest.mark.parametrize(
    "uri", ["viking://", "viking://user/memories/a.md", f"{ROOT}/", f"{ROOT}/memories/", "viking://session/s1"]
)
def test_parse_takes_the_canonical_form_only(uri: str) -> None:
    with pytest.raises(UriError):
        parse(uri)


@pytest.mark.parametrize("index", [1, 42, 999, 1000, 123456])
def test_archives_round_trip(index: int) -> None:
    uri = archive_uri("alice", "s1", index)
    assert parse_archive(uri) == ArchiveUri("alice", "s1", index, ())
    assert parse_archive(f"{uri}/.done") == ArchiveUri("alice", "s1", index, (".done",))


@pytest.mark.parametrize("name", ["archive_0", "archive_01", "archive_000", "archive_0001", "archive_x", "other"])
def test_other_archive_names_are_refused(name: str) -> None:
    with pytest.raises(UriError):
        parse_archive(f"{ROOT}/sessions/s1/history/{name}")


SEGMENTS = st.one_of(
    st.sampled_from(
        ["user", "session", "agent", "memories", "sessions", "peers", "skills", "alice", "bob", "..", ".", "", "%2e%2e"]
    ),
    st.text(max_size=12),
)


@given(st.lists(SEGMENTS, max_size=7).map("/".join))
@example("user/alice/memories/../../bob")
@example("user/memories/A\u030a")
def test_canonical_form_is_stable_and_stays_inside(path: str) -> None:
    try:
        canonical = canonicalize(f"viking://{path}", "alice")
    except UriError:
        return
    assert canonical == ROOT or canonical.startswith(f"{ROOT}/")
    assert not {"", ".", ".."} & set(canonical.removeprefix("viking://").split("/"))
    assert canonicalize(canonical, "alice") == canonical
    assert parse(canonical).uri == canonical
    assert parse(canonical).user == "alice"
    with pytest.raises(ForeignSpaceError):
        canonicalize(canonical, "carol")
