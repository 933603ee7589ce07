"""The one cookie of the studio, and the token that forms carry beside it."""

import secrets

from itsdangerous import BadSignature, Signer, TimestampSigner
from starlette.requests import Request
from starlette.responses import Response

from runekeep.studio.identity.logins import MAX_AGE_SECONDS


class Cookies:
    """Signs with a key of this process. `name` differs by port, since browsers share cookies between ports."""

    def __init__(self, port: int, tls: bool) -> None:
        key = secrets.token_bytes(32)
        self._tls = tls
        self.name = f"{'__Host-' if tls else ''}runekeep_studio_{port}"
        self._cookie = TimestampSigner(key, salt="cookie")
        self._form = Signer(key, salt="form")

    def read(self, request: Request) -> str:
        """Returns the id that the browser's cookie holds; empty for none, a forged or an old one."""
        value = request.cookies.get(self.name, "")
        try:
            return self._cookie.unsign(value, max_age=int(MAX_AGE_SECONDS)).decode()
        except BadSignature:
            return ""

    def write(self, response: Response, browser_id: str) -> None:
        response.set_cookie(
            self.name,
            self._cookie.sign(browser_id).decode(),
            max_age=int(MAX_AGE_SECONDS),
            httponly=True,
            secure=self._tls,
            samesite="lax",
        )

    def delete(self, response: Response) -> None:
        response.delete_cookie(self.name, httponly=True, secure=self._tls, samesite="lax")

    def form_token(self, browser_id: str) -> str:
        """Returns what a form of this browser must carry. Another site can neither read nor make it."""
        return self._form.get_signature(browser_id).decode()

    def is_form_token(self, browser_id: str, token: str) -> bool:
        return bool(browser_id) and self._form.verify_signature(browser_id, token)
