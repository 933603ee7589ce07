"""The ASGI application: every page, and what lies around it."""

import contextlib
import secrets
from collections.abc import AsyncGenerator
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from runekeep.studio.http.errors import plain_error
from runekeep.studio.http.routes import route
from runekeep.studio.http.security import SecurityMiddleware
from runekeep.studio.http.visit import Studio, Visit
from runekeep.studio.identity.cookies import Cookies
from runekeep.studio.identity.logins import Logins
from runekeep.studio.pages import (
    commits,
    data,
    handbook,
    history,
    login,
    memories,
    operators,
    overview,
    proposals,
    recall,
    search,
    sessions,
    tasks,
    turns,
)
from runekeep.studio.rendering.environment import environment
from runekeep.studio.settings import StudioSettings
from runekeep.web.exposure import called_names

STATIC = Path(__file__).parent / "static"

PAGES = (
    route("/login", login.login_page, public=True),
    route("/login", login.log_in, "POST", public=True),
    route("/logout", login.log_out, "POST", public=True),
    route("/help", handbook.handbook, public=True),
    route("/", overview.overview),
    route("/sessions", sessions.session_list),
    route("/sessions/{session}", sessions.session),
    route("/sessions/{session}/commit", sessions.commit, "POST"),
    route("/sessions/{session}/archives/{index:int}", sessions.archive),
    route("/sessions/{session}/commits/{index:int}", commits.commit),
    route("/sessions/{session}/message", sessions.message),
    route("/sessions/{session}/message/memories", sessions.message_memories),
    route("/sessions/{session}/turns", turns.turns),
    route("/sessions/{session}/turns/feedback", turns.give_feedback, "POST"),
    route("/sessions/{session}/turns/bucket", turns.set_bucket_state, "POST"),
    route("/sessions/{session}/turns/reconcile", turns.reconcile, "POST"),
    route("/tasks", tasks.task_list),
    route("/tasks/{task}", tasks.task),
    route("/tasks/{task}/events", tasks.events),
    route("/tasks/{task}/cancel", tasks.cancel, "POST"),
    route("/tasks/{task}/retry", tasks.retry, "POST"),
    route("/tree", memories.tree),
    route("/memory", memories.memory),
    route("/memory/new", memories.new_memory),
    route("/memory/edit", memories.edit_memory),
    route("/memory/save", memories.save_memory, "POST"),
    route("/memory/delete", memories.delete_memory, "POST"),
    route("/search", search.search),
    route("/recall", recall.recall),
    route("/recall/left-out", recall.left_out),
    route("/history", history.history),
    route("/history/diff", history.difference),
    route("/history/{number:int}", history.revision),
    route("/history/{number:int}/rollback", history.rollback_preview),
    route("/history/{number:int}/rollback", history.rollback, "POST"),
    route("/proposals", proposals.proposal_list),
    route("/proposals/{task}", proposals.proposal),
    route("/proposals/{task}/accept", proposals.accept, "POST"),
    route("/proposals/{task}/refuse", proposals.refuse, "POST"),
    route("/proposals/{task}/edit", proposals.edit, "POST"),
    route("/turns", turns.turn_sessions),
    route("/data", data.data),
    route("/data/export", data.export),
    route("/data/import", data.import_, "POST", upload=True),
    route("/data/erase", data.erase, "POST"),
    route("/erasures/{erasure}", data.receipt),
    route("/operator", operators.status, operator=True),
    route("/operator/accounts", operators.accounts, operator=True),
    route("/operator/accounts", operators.set_limits, "POST", operator=True),
    route("/operator/keys", operators.keys, operator=True),
    route("/operator/keys", operators.create_key, "POST", operator=True),
    route("/operator/keys/rotate", operators.rotate_key, "POST", operator=True),
    route("/operator/keys/revoke", operators.revoke_key, "POST", operator=True),
    route("/operator/audit", operators.audit, operator=True),
)


def create_app(settings: StudioSettings, entry_token: str = "") -> Starlette:
    """Returns the studio. `entry_token`: what its link carries where it acts with its own credentials; random when
    empty. Raises ListenError for settings that would let strangers in."""
    settings.check()
    studio = Studio(
        settings=settings,
        logins=Logins(),
        cookies=Cookies(settings.port, settings.tls),
        templates=environment(),
        entry_token=entry_token or secrets.token_urlsafe(32),
    )

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        yield
        await studio.logins.close()

    async def not_found(request: Request, error: Exception) -> Response:
        known = studio.cookies.read(request)
        visit = Visit(studio, request, known, studio.logins.find(known))
        return plain_error(visit, 404, "There is no such page", "The address may be mistyped.")

    routes: list[BaseRoute] = [page.bind(studio) for page in PAGES]
    routes.append(Mount("/static", StaticFiles(directory=STATIC), name="static"))
    return Starlette(
        routes=routes,
        middleware=[Middleware(SecurityMiddleware, names=called_names(settings))],
        exception_handlers={404: not_found, 500: _failed},
        lifespan=lifespan,
    )


async def _failed(request: Request, error: Exception) -> Response:
    # Starlette raises the error again for the log of the server; the browser gets none of it.
    return PlainTextResponse("The studio failed. Its log says more.", 500)
