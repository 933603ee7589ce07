"""Secrets told by their form, and what only looks like one."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep_schemas.secrets import SecretKind, withhold

ALNUM = string.ascii_letters + string.digits
BOB = "[withheld: password]"


# Made up, or the providers' own examples; put together here so that scanners of repositories do not take them for real.
@pytest.mark.parametrize(
    "token",
    [
        "AKIA" + "IOSFODNN7EXAMPLE",
        "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
        "github_pat_" + "11ABCDEFG0123456789abcd_EFGH",
        "glpat-" + "ABCdefGHIjkl12345678",
        "xoxb-" + "123456789012-abcdefghijkl",
        "sk-ant-" + "api03-abcdefghijklmnopqrstuvwxyz0123",
        "sk-proj-" + "abcdefghijklmnopqrstT3BlbkFJ",
        "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
        "AIza" + "SyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe",
        "npm_" + "a" * 36,
        "hf_" + "B" * 34,
        "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "dozjgNryP4J3jVmNHl0w5N",
    ],
)
def test_tokens_of_known_forms(token: str) -> None:
    assert withhold(f"My key is {token}, keep it.") == ("My key is [withheld: token], keep it.", [SecretKind.TOKEN])
    assert withhold(f"({token})") == ("([withheld: token])", [SecretKind.TOKEN])


@pytest.mark.parametrize(
    "before", ["the deploy key ", "key: ", "The access token for staging: ", "令牌是", "API-Schlüssel ("]
)
def test_a_random_string_after_a_word_that_says_what_it_is(before: str) -> None:
    for drawn in ("q7Rk2vX9mZ4tB8wL1pNc", "9f86d081884c7d659a2feaa0c55ad015"):
        assert withhold(f"{before}{drawn}.") == (f"{before}[withheld: token].", [SecretKind.TOKEN])


@pytest.mark.parametrize(
    "text",
    [
        "cache key orders-2024-05-final-report-v2",
        "key 550e8400-e29b-41d4-a716-446655440000",
        "the key OrderItemArchive2024Final",
        "token budget of 1600 for recall-2024-05-06-07-08-09",
        "the key docs/design/reliability-v2-notes.md",
    ],
)
def test_names_after_such_a_word_stay(text: str) -> None:
    assert withhold(text) == (text, [])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("the password is hunter2.", f"the password is {BOB}."),
        ("password: correct-horse", f"password: {BOB}"),
        ("Passphrase = 'correct horse battery'", f"Passphrase = '{BOB}'"),
        ("The password for the server is Tr0ub4dor&3, keep it", f"The password for the server is {BOB}, keep it"),
        ('DB_PASSWORD="x9f!k"', f'DB_PASSWORD="{BOB}"'),
        ("My PIN is 4711.", f"My PIN is {BOB}."),
        ("my api key is abc123def", f"my api key is {BOB}"),
        ("mein Passwort lautet geheim123!", f"mein Passwort lautet {BOB}!"),
        ("mot de passe : soleil42", f"mot de passe : {BOB}"),
        # A space that does not break stands before a colon in French.
        ("mot de passe pour le serveur\u00a0: Xk9fQ2zz", f"mot de passe pour le serveur\u00a0: {BOB}"),
        ("PIN pour la carte\u202f: 1234", f"PIN pour la carte\u202f: {BOB}"),
        ("password for 公司的网络：Xk9fQ2zz", f"password for 公司的网络：{BOB}"),
        ("password for the app that I use to log in to my bank at home is Xk9fQ2zz", None),
        ("密码是abc12345，请记住", f"密码是{BOB}，请记住"),
        ("postgres://bob:s3cr3t@db.host/x", f"postgres://bob:{BOB}@db.host/x"),
        ("password: swordfish", f"password: {BOB}"),
        ("The password is 123456.", f"The password is {BOB}."),
        ("export PGPASSWORD=abc123", f"export PGPASSWORD={BOB}"),
        (r"{\"password\": \"hunter2\"}", rf"{{\"password\": \"{BOB}\"}}"),
    ],
)
def test_passwords_that_are_named(text: str, left: str | None) -> None:
    left = left or f"{text.rpartition(' ')[0]} {BOB}"
    assert withhold(text) == (left, [SecretKind.PASSWORD])
    assert withhold(left) == (left, [])


def test_a_private_key_goes_whole_and_one_that_is_cut_off_to_the_end() -> None:
    begin, end = "-----BEGIN OPENSSH PRIVATE " + "KEY-----", "-----END OPENSSH PRIVATE " + "KEY-----"
    assert withhold(f"use\n{begin}\nb3Blbn\nNzaC1\n{end}\nplease")[0] == "use\n[withheld: private key]\nplease"
    assert withhold(f"use\n{begin}\nb3Blbn")[0] == "use\n[withheld: private key]"


@pytest.mark.parametrize(
    "number",
    ["4111 1111 1111 1111", "4111111111111111", "5555-5555-5555-4444", "378282246310005", "6011111111111117",
     "3530111333300000", "30569309025904", "2223003122003222"],
)  # fmt: skip
def test_card_numbers_by_network_and_check_digit(number: str) -> None:
    assert withhold(f"pay with {number} please") == (
        "pay with [withheld: card number] please",
        [SecretKind.CARD_NUMBER],
    )
    wrong = number[:-1] + str((int(number[-1]) + 1) % 10)
    assert withhold(f"pay with {wrong} please") == (f"pay with {wrong} please", [])


@pytest.mark.parametrize(
    "text",
    [
        "The password is wrong, and so is the user name.",
        "password policy: at least 12 characters",
        "Passwords are stored in 1Password.",
        "She told me the secret to 3 good breads.",
        "The access token is valid for 3600 seconds.",
        "Pin it to board 3, the spinning board.",
        "Call me at +32 476 12 34 56 78 90, order 4111 1111 1111 1112.",
        "It took 1712345678901 ms; pi is 3.141592653589793238.",
        "commit 4111111111111111abcdef0123456789abcdef01",
        "The task-skiing-in-the-mountains-with-friends was fun.",
        "https://example.com:8443/path@home",
        "Meine PIN habe ich vergessen.",
        "The encryption key is AES-256, and the password is SHA-256 hashed.",
        "The password is base64-encoded; it is 12+ characters long. Access token: 15min",
        "LED pin: GPIO13, data pin = D13, pin is 5 V.",
        "Credentials: ~/.aws/credentials, private key: id_ed25519",
        "api_key=os.environ['OPENAI_API_KEY'], password = get_password()",
        'the password is "wrong", he said',
        'credential: "a name or phrase used to log in"',
        "Forgot password:\n2026-01-02 Anna called",
        "http://localhost:3000?user=a@b.com",
        "Password: required. Password: unchanged since spring",
        "token: a-word-of-many-parts-without-numbers",
    ],
)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert withhold(text) == (text, [])


def test_other_tokens_that_are_named() -> None:
    assert withhold("Authorization: Basic " + "YWxhZGRpbjpvcGVuc2VzYW1l")[0] == "Authorization: Basic [withheld: token]"
    assert withhold("token: " + "0f3a" * 8)[0] == "token: [withheld: token]"
    assert withhold("4111\u00a01111\u00a01111\u00a01111")[0] == "[withheld: card number]"


@pytest.mark.parametrize(
    "piece",
    [
        *("a.", "a", " ", "4", "4 ", "-----BEGIN PRIVATE KEY", "password for ", "password is ", "://", "://a:", "a:b@"),
        *("eyJ", "eyJaaaaaaaa.", "sk-", "Bearer ", "PIN ", "PIN for a ", "token=", '\\"', "[withheld: "),
    ],
)
def test_the_work_grows_with_the_length_alone(piece: str) -> None:
    """What grows with the square would take hours, and end by the time that a test may take."""
    text = piece * (400_000 // len(piece))
    left, _ = withhold(text)
    assert left


@pytest.mark.parametrize("place", range(-40, 8))
def test_a_secret_lies_across_two_pieces_of_a_long_text(place: int) -> None:
    """`place` is the offset of `the PIN is 4711` from the end of a piece (16 or 32 KiB) or of a search (24 KiB)."""
    for length in (16 * 1024, 24 * 1024, 32 * 1024):
        before = "so " * (length // 3 + 1)
        before, after = before[: length + place - 1] + " ", " and so on" * 4000
        assert withhold(f"{before}the PIN is 4711{after}") == (
            f"{before}the PIN is {BOB}{after}",
            [SecretKind.PASSWORD],
        )


def test_a_key_is_longer_than_a_piece() -> None:
    begin, end = "-----BEGIN OPENSSH PRIVATE " + "KEY-----", "-----END OPENSSH PRIVATE " + "KEY-----"
    key = "b3Blbn-NzaC1\n" * 10_000
    assert withhold(f"use\n{begin}\n{key}{end}\nplease")[0] == "use\n[withheld: private key]\nplease"


SAID = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=40)
SECRETS = st.one_of(
    st.text(ALNUM, min_size=36, max_size=60).map("ghp_".__add__),
    st.text(ALNUM, min_size=20, max_size=60).map("sk-".__add__),
    st.text(string.ascii_uppercase + string.digits, min_size=16, max_size=16).map("AKIA".__add__),
    st.text(string.digits, min_size=14, max_size=14).map(lambda digits: _with_check_digit("4" + digits)),
)


def _with_check_digit(digits: str) -> str:
    doubled = [int(digit) * (2 if place % 2 == 0 else 1) for place, digit in enumerate(reversed(digits))]
    return digits + str(-sum(value - 9 if value > 9 else value for value in doubled) % 10)


@given(before=SAID, secret=SECRETS, after=SAID)
def test_a_secret_is_gone_whatever_stands_around_it(before: str, secret: str, after: str) -> None:
    left, found = withhold(f"{before}\n{secret}\n{after}")
    assert secret not in left and found


@given(st.lists(st.one_of(SAID, SECRETS, st.sampled_from(["password:", "is", "PIN =", "://a:b1@", "Bearer "]))))
def test_what_is_left_holds_nothing_more(parts: list[str]) -> None:
    left, _ = withhold(" ".join(parts))
    assert withhold(left) == (left, [])


@given(st.lists(st.text(string.ascii_lowercase, max_size=12)))
def test_plain_words_are_never_touched(words: list[str]) -> None:
    text = " ".join(words)
    assert withhold(text) == (text, [])
