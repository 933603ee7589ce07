"""Finds secrets in a text: keys and tokens of well-known forms, passwords that are named as such, card numbers.

It matches by form alone, so that it needs no network and the same text always gives the same result. A secret without a
form of its own, such as a password that the text does not call one, is not found.

The token forms are those that the providers document for scanning. detect-secrets (1.5) was tried instead: it finds
lines to review rather than the secrets to remove, and expects assignments in source code rather than sentences.

Run as a script, this module reads a JSON array of texts from standard input and writes the array of their results. Its
argument limits its processor time, in seconds. It uses the standard library alone, so that it starts fast: see
`runekeep_server.protocol.secret_scan`.
"""

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Final


class SecretKind(StrEnum):
    """The kind of a secret, in the words that replace it."""

    PRIVATE_KEY = "private key"
    TOKEN = "token"
    PASSWORD = "password"
    CARD_NUMBER = "card number"


@dataclass(frozen=True, slots=True)
class _Form:
    """A form of secrets. `pattern`: its group `secret` is the secret, else the whole match. `holds` makes further
    checks.
    """

    kind: SecretKind
    pattern: re.Pattern[str]
    holds: Callable[[str], bool] = lambda found: True


_KEYS = "|".join(
    (
        r"(?:AKIA|ASIA)[A-Z0-9]{16}",  # AWS
        r"gh[oprsu]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255}",
        r"gl(?:pat|ptt|dt|rt|cbt)-[A-Za-z0-9_-]{20,}",  # GitLab
        r"xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}",  # Slack
        r"sk-[A-Za-z0-9_-]{20,}",  # Anthropic, OpenAI
        r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{24,}",  # Stripe
        r"AIza[A-Za-z0-9_-]{35}|GOCSPX-[A-Za-z0-9_-]{28}|ya29\.[A-Za-z0-9_-]{20,}",  # Google
        r"npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}|hf_[A-Za-z0-9]{30,}",
        r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",  # SendGrid
        r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",  # JSON Web Token
    )
)
_PASSWORD_WORDS = (
    r"pass[ -]?(?:word|phrase|code)s?|passwd|pwd|passwort|kennwort|wachtwoord|mot de passe|contrase[nñ]a|senha|"
    r"has[lł]o|l[oö]senord|пароль"
)
_KEY_WORDS = (
    r"(?:api|access|secret|auth|private|encryption|signing)[ _-]?(?:key|token|secret)s?|client[ _-]?secret|"
    r"bearer[ _-]?token"
)
_IS = r"(?:is|was|are|ist|lautet|est|es|era|é|jest|är)"
# Matched word by word, so that a text that repeats only such beginnings costs little more than any other text.
_FOR = (
    r"(?:[ ](?:for|of|to|on|in|für|von|pour|para|de|voor)[ ][^\S\n]*+"
    r"[^\s.:：=\[\]]{1,60}+(?:[^\S\n]++[^\s.:：=\[\]]{1,60}+){0,14}?)?"
)
_QUOTE = r"\\?[\"'`“«]"
_NAMED = (
    # The word, its purpose, and then the value after a sign or a verb. All on one line. The first letters of the words
    # are checked first, because most characters are none of them.
    rf"(?<![^\W_])(?=[abcehklmpswп])(?:{_PASSWORD_WORDS}|{_KEY_WORDS})(?![^\W_])(?:{_QUOTE})?{_FOR}"
    rf"[^\S\n]*+(?:(?P<sign>[:=：]|=>)|(?<=\s){_IS}(?=\s))[ \t]*(?:[:=][ \t]*)?"
)
_VALUE = rf"(?P<quote>{_QUOTE})?(?P<secret>(?(quote)[^\"'`”»\n\\]{{3,200}}|[^\s\"'`“«,;<\[\\][^\s\\]{{2,199}}))"

_KEY_BLOCK = r"(?:[A-Z0-9]{1,20} ){0,8}PRIVATE KEY(?: BLOCK)?-----"

_PIECE: Final = 16 * 1024
_OVERLAP: Final = 8 * 1024
"""Characters per search, because a search holds the interpreter's lock: a piece of the text, and an overlap for a
secret that begins in the piece and ends after it.
"""

_FORMS: Final = (
    _Form(
        SecretKind.PRIVATE_KEY,
        re.compile(rf"-----BEGIN {_KEY_BLOCK}(?:[^-]++|-(?!----END {_KEY_BLOCK}))*+(?:-----END {_KEY_BLOCK})?"),
    ),
    _Form(SecretKind.TOKEN, re.compile(rf"(?<![A-Za-z0-9_-])(?:{_KEYS})(?![A-Za-z0-9])")),
    _Form(
        SecretKind.TOKEN,
        re.compile(r"\b(?:Bearer|Authorization:[ \t]*Basic)[ \t]+(?P<secret>[A-Za-z0-9._~+/-]{12,400}=*)"),
        lambda found: _is_mixed(found) or len(found) >= 20,
    ),
    _Form(
        SecretKind.TOKEN,
        re.compile(
            rf"(?<![^\W_])(?:token|secret)(?:{_QUOTE})?[ \t]*[:=][ \t]*(?:{_QUOTE})?"
            r"(?P<secret>[A-Za-z0-9_+/-]{20,400})",
            re.IGNORECASE,
        ),
        lambda found: _is_mixed(found),
    ),
    # A long mixed string after a word that says what it is: "the deploy key q7Rk2vX9...".
    _Form(
        SecretKind.TOKEN,
        re.compile(
            r"(?<![^\W_])(?:token|key|secret|credential|schl[uü]ssel|clave|cl[eé]|chiave|密钥|令牌)s?"
            rf"(?:(?:[^\S\n]+[^\W\d_]{{1,12}}){{0,2}}(?:[^\S\n]*[:=：(][^\S\n]*|[^\S\n]+)|[是为]+)(?:{_QUOTE})?"
            r"(?P<secret>[A-Za-z0-9_+/-]{20,400}={0,2})(?![A-Za-z0-9_+/-]|[.:][A-Za-z0-9])",
            re.IGNORECASE,
        ),
        lambda found: _is_random(found),
    ),
    _Form(SecretKind.PASSWORD, re.compile(r"://[^\s/:@?#]{0,256}:(?P<secret>[^\s/@?#\[]{1,256})@")),
    # Environment variables of a program.
    _Form(
        SecretKind.PASSWORD,
        re.compile(
            rf"(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|API_?KEY)=(?:{_QUOTE})?(?P<secret>[^\s\"'`$<\[(]{{4,200}})"
        ),
        lambda found: any(character.isdigit() for character in found),
    ),
    _Form(
        SecretKind.PASSWORD,
        re.compile(
            rf"\bPIN(?:[ -](?:code|number))?{_FOR}[^\S\n]*+(?:[:=]|{_IS})[ \t]*+(?P<secret>[0-9]{{4,8}})(?![\w.-]\w)",
            re.IGNORECASE,
        ),
    ),
    _Form(SecretKind.PASSWORD, re.compile(_NAMED + _VALUE, re.IGNORECASE)),
    # Scripts without spaces.
    _Form(
        SecretKind.PASSWORD,
        re.compile(r"(?:密码|密碼|口令|パスワード)\s*(?:是|为|為|は|[:：=])\s*(?P<secret>(?!\[withheld)[!-~]{3,200})"),
    ),
    _Form(
        SecretKind.CARD_NUMBER,
        re.compile(r"(?<![\w.,-])[2-6](?:[ \u00a0\u202f-]?[0-9]){12,18}(?![\w-]|[.,][0-9])"),
        lambda found: _is_card(re.sub(r"\D", "", found)),
    ),
)
# Networks by first digits and length: Visa, Mastercard, American Express, Discover, JCB, Diners Club, UnionPay.
_CARD: Final = re.compile(
    r"4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})|5[1-5][0-9]{14}|2(?:2[2-9]|[3-6][0-9]|7[01])[0-9]{13}|2720[0-9]{12}|"
    r"3[47][0-9]{13}|6(?:011|5[0-9]{2}|4[4-9][0-9])[0-9]{12}|35(?:2[89]|[3-8][0-9])[0-9]{12}|3(?:0[0-5]|[68][0-9])[0-9]{11}|"
    r"62[0-9]{14,17}"
)


def withhold(text: str) -> tuple[str, list[SecretKind]]:
    """Returns the text with every secret replaced by a note of its kind, and the kinds found; usually none."""
    found: list[SecretKind] = []
    for form in _FORMS:
        text = _substitute(form.pattern, partial(_replaced, form, found), text)
    return text, found


def _substitute(pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str], text: str) -> str:
    """Returns what `pattern.sub` returns, but searches a long text piece by piece, so that other threads can run."""
    if len(text) <= _PIECE + _OVERLAP:
        return pattern.sub(replace, text)
    parts: list[str] = []
    done = at = 0
    while at < len(text):
        end = at + _PIECE
        match = pattern.search(text, at, end + _OVERLAP)
        if match is None or match.start() >= end:
            at = end
            continue
        # The match may continue beyond the searched range.
        start = match.start()
        match = pattern.match(text, start)
        if match is None:
            at = start + 1
            continue
        parts += (text[done:start], replace(match))
        done = at = match.end()
    return "".join((*parts, text[done:]))


def _replaced(form: _Form, found: list[SecretKind], match: re.Match[str]) -> str:
    named = "secret" in form.pattern.groupindex
    secret = match["secret"] if named else match[0]
    if "sign" in form.pattern.groupindex:
        # A full stop ends the sentence, not the password.
        secret = secret.rstrip(".,;:!?)")
        if not _is_named_secret(secret, match):
            return match[0]
    if not form.holds(secret):
        return match[0]
    found.append(form.kind)
    start = (match.start("secret") if named else match.start()) - match.start()
    return f"{match[0][:start]}[withheld: {form.kind}]{match[0][start + len(secret) :]}"


# Values after "password is" or "key:" that are not secrets: algorithms, units, dates, places, code.
_NO_SECRET: Final = re.compile(
    r"[A-Z]{1,6}[-_]?[0-9]{1,4}(?:[-_].*)?|base(?:32|58|64).*|[0-9]+(?:\+|%|ms|s|sec|min|h|d|days|hours|x|bits?|chars|th)|[0-9]{4}-[0-9]{2}-[0-9]{2}.*|"
    r"[~./$%{].*|id_[a-z0-9]+|.*[(\[{<].*|[0-9]+[-/][a-z]+"
)
_SAID_OF_IT: Final = frozenset(
    "changed correct different empty expired forgotten gone hidden incorrect invalid kept known missing needed none "
    "optional required reset rotated safe saved secret secure shared stored strong unchanged unknown weak wrong".split()
)


def _is_named_secret(value: str, match: re.Match[str]) -> bool:
    """Returns whether the word after "password is" or "password:" is a password: in "the password is wrong"
    it is not.
    """
    if len(value) < 4 or "[withheld" in value or _NO_SECRET.fullmatch(value):
        return False
    if value.isdigit():
        return True
    if not match["sign"]:
        return _is_mixed(value)
    if _is_mixed(value) or match["quote"]:
        return value.lower() not in _SAID_OF_IT
    # It must be a single word, with nothing after it that would make it the beginning of a sentence.
    alone = not match.string[match.end() : match.end() + 2].strip()
    return alone and len(value) >= 6 and value.lower() not in _SAID_OF_IT


def _is_mixed(value: str) -> bool:
    """Returns whether a value has both letters and digits, as no ordinary word does."""
    return any(character.isalpha() for character in value) and any(character.isdigit() for character in value)


# A UUID names something: it opens nothing.
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_DIGIT_CHANGES: Final = 0.25
_CASE_CHANGES: Final = 0.4
"""Shares of neighbouring characters in a random string that are a letter and a digit, and that are of different classes
(capital, small letter, digit). A random string has 0.27 to 0.47 and 0.6 on average. A name made of words, dates and
versions has about half."""


def _is_random(value: str) -> bool:
    """Returns whether a value looks drawn at random."""
    if _UUID.fullmatch(value):
        return False
    pairs = [(one, other) for one, other in pairwise(value) if one.isalnum() and other.isalnum()]
    of_digits = sum(one.isdigit() != other.isdigit() for one, other in pairs)
    of_case = sum(one.isdigit() == other.isdigit() and one.isupper() != other.isupper() for one, other in pairs)
    total = len(value) - 1
    return of_digits >= _DIGIT_CHANGES * total or (of_digits > 0 and of_digits + of_case >= _CASE_CHANGES * total)


def _is_card(digits: str) -> bool:
    if not _CARD.fullmatch(digits):
        return False
    # Luhn checksum, ISO/IEC 7812-1.
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


if __name__ == "__main__":
    import resource

    os.nice(10)
    # A process that exceeds its processor time must not leave the texts in a core dump.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))
    json.dump([withhold(text) for text in json.load(sys.stdin.buffer)], sys.stdout)
