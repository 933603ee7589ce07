"""Puts the server together: store, dispatcher, services."""

from collections.abc import Sequence
from uuid import uuid4

from runekeep.v1 import (
    admin_service_pb2_grpc,
    extractor_service_pb2_grpc,
    history_service_pb2_grpc,
    memory_service_pb2_grpc,
    session_service_pb2_grpc,
    space_service_pb2_grpc,
    task_service_pb2_grpc,
    turn_memory_service_pb2_grpc,
)
from schemas.registry import Registry
from schemas.schema_file import SchemaError
from server.access import open_access
from server.accounts import Accounts
from server.admin_service import AdminService
from server.answer_sizes import AnswerSizes
from server.app import Lifecycle, Service, StartError
from server.auto_commit import IdleCommits
from server.commits import Commits
from server.erasures import Erasures
from server.extractor_service import ExtractorService
from server.history_service import HistoryService
from server.limits import Limits
from server.memory_service import MemoryService
from server.server_status import ServerStatus
from server.session_service import SessionService
from server.settings import Settings
from server.space_import import Imports
from server.space_service import SpaceService
from server.task_service import TaskService
from server.telemetry.exposing import CannotListen, open_metrics, open_tracing
from server.telemetry.standing import Standings
from server.turn_memory_service import TurnMemoryService
from server.watchers import Watchers
from server.work.dispatcher import Dispatcher
from storage.database import Topic
from storage.errors import DataDirectoryInUse, DataDirectoryUnusable, StoreError, StoreUnreachable
from storage.index.base import IndexMismatch, IndexTooOld
from storage.ranking import Ranking
from storage.relay import PASSAGES
from storage.store import POSTGRES_SCHEMES, SQLITE_SCHEME, Store, StoreOptions


def store_options(settings: Settings) -> StoreOptions:
    """Raises StartError for what this release does not have."""
    if settings.store_url and not settings.store_url.startswith((*POSTGRES_SCHEMES, SQLITE_SCHEME)):
        # Of the URL only what cannot be a password.
        scheme = settings.store_url.partition(":")[0]
        raise StartError(
            f"store_url (RUNEKEEP_STORE_URL): there is no store for {scheme} URLs; give"
            " postgresql://user:password@host/database or sqlite:///path/of/file.db, or leave it empty"
        )
    return StoreOptions(
        data_dir=settings.data_dir,
        url=settings.store_url,
        store_wait_seconds=settings.store_wait_seconds,
        embedder=settings.embedder,
        embedder_threads=settings.embedder_threads,
        index_url=settings.index_url,
        index_api_key=settings.index_api_key.get_secret_value() or None,
        blob_dir=settings.blob_dir,
        blob_url=settings.blob_url,
        poll_seconds=settings.poll_seconds,
        index_check_seconds=settings.index_check_seconds,
        erasure_purge_seconds=settings.erasure_purge_seconds,
        accept_data_loss=settings.accept_data_loss,
        start_check_seconds=settings.start_check_seconds,
        data_check_seconds=settings.data_check_seconds,
        blob_check_bytes_per_second=settings.blob_check_bytes_per_second,
        ranking=Ranking(**settings.search.model_dump()),
    )


def load_registry(settings: Settings) -> Registry:
    """Raises StartError for a bad type file, with its name, line and reason."""
    try:
        return Registry.load(settings.types_dirs)
    except SchemaError as error:
        raise StartError(f"types_dirs (RUNEKEEP_TYPES_DIRS): {error}") from error


async def build_services(settings: Settings, lifecycle: Lifecycle) -> Sequence[Service]:
    """Opens the store. Raises StartError."""
    server_id = f"server-{uuid4().hex[:8]}"
    open_tracing(server_id, lifecycle)
    registry = load_registry(settings)
    try:
        store = Store(store_options(settings), registry)
    except ValueError as error:
        raise StartError(f"blob_url (RUNEKEEP_BLOB_URL): {error}") from error
    lifecycle.on_close(store.close)
    store.guard.on_lost = lifecycle.fail
    try:
        await store.open()
    except IndexTooOld as error:
        raise StartError(f"index_url (RUNEKEEP_INDEX_URL): {error}") from error
    except IndexMismatch as error:
        raise StartError(f"embedder (RUNEKEEP_EMBEDDER): {error}") from error
    except StoreError as error:
        of_url = settings.store_url and not isinstance(error, DataDirectoryInUse | DataDirectoryUnusable)
        setting = "store_url (RUNEKEEP_STORE_URL)" if of_url else "data_dir (RUNEKEEP_DATA_DIR)"
        raise StartError(f"{setting}: {error}", temporary=isinstance(error, StoreUnreachable)) from error
    limits = Limits(settings.limits)
    accounts = Accounts(store.all_spaces, store.blobs, limits, settings.limits)
    keys = open_access(settings, store.database, limits, lifecycle)
    watchers = Watchers(store.database, settings.poll_seconds)
    dispatcher = Dispatcher(store, settings, watchers, server_id)
    standings = Standings(store.all_spaces)
    sizes = AnswerSizes.of(settings.max_message_bytes)
    try:
        open_metrics(settings, store, standings, lifecycle)
    except CannotListen as error:
        raise StartError(f"metrics_address (RUNEKEEP_METRICS_ADDRESS): {error}") from error

    async def start() -> None:
        dispatcher.start()

    def committed() -> None:
        dispatcher.wake()
        store.relay.wake(PASSAGES)

    def heard(topic: Topic, subject: str) -> None:
        match topic:
            case Topic.JOBS:
                dispatcher.wake()
            case Topic.TASK:
                watchers.heard(subject)
            case Topic.INDEX:
                store.relay.heard(subject)

    commits = Commits(registry, settings, committed)
    idle_commits = IdleCommits(store.database, commits, settings.poll_seconds)
    await store.database.listen(heard)
    lifecycle.probe = store.probe
    lifecycle.on_start(accounts.start)
    lifecycle.on_start(start)
    lifecycle.on_start(watchers.start)
    lifecycle.on_start(idle_commits.start)
    lifecycle.on_drain(dispatcher.drain)
    lifecycle.on_drain(watchers.drain)
    lifecycle.on_close(accounts.close)
    lifecycle.on_close(dispatcher.close)
    lifecycle.on_close(watchers.close)
    lifecycle.on_close(idle_commits.close)
    tasks = TaskService(
        store,
        watchers,
        account_daily_token_budget=settings.account_daily_token_budget,
        buckets_enabled=settings.buckets_enabled,
        cancelled=dispatcher.cancelled,
        queued=dispatcher.wake,
        sizes=sizes,
    )
    return [
        Service(
            session_service_pb2_grpc.add_SessionServiceServicer_to_server,
            SessionService(store, settings, commits, cancelled=dispatcher.cancelled),
            "runekeep.v1.SessionService",
        ),
        Service(
            memory_service_pb2_grpc.add_MemoryServiceServicer_to_server,
            MemoryService(
                store, cancelled=dispatcher.cancelled, withhold_secrets=settings.withhold_secrets, sizes=sizes
            ),
            "runekeep.v1.MemoryService",
        ),
        Service(
            history_service_pb2_grpc.add_HistoryServiceServicer_to_server,
            HistoryService(store, settings),
            "runekeep.v1.HistoryService",
        ),
        Service(
            turn_memory_service_pb2_grpc.add_TurnMemoryServiceServicer_to_server,
            TurnMemoryService(store, settings, queued=dispatcher.wake),
            "runekeep.v1.TurnMemoryService",
        ),
        Service(task_service_pb2_grpc.add_TaskServiceServicer_to_server, tasks, "runekeep.v1.TaskService"),
        Service(
            space_service_pb2_grpc.add_SpaceServiceServicer_to_server,
            SpaceService(
                store,
                Erasures(store, ended=dispatcher.cancelled, queued=dispatcher.wake),
                Imports(
                    store,
                    most_bytes=settings.max_import_bytes,
                    limits=settings.limits,
                    lease_seconds=settings.lease_seconds,
                    queued=dispatcher.wake,
                ),
            ),
            "runekeep.v1.SpaceService",
        ),
        Service(
            extractor_service_pb2_grpc.add_ExtractorServiceServicer_to_server,
            ExtractorService(store, dispatcher),
            "runekeep.v1.ExtractorService",
        ),
        Service(
            admin_service_pb2_grpc.add_AdminServiceServicer_to_server,
            AdminService(
                store.database,
                accounts,
                ServerStatus(store, settings, standings, dispatcher),
                key_changed=keys.forget,
            ),
            "runekeep.v1.AdminService",
            # Of a store that is away its status still tells.
            needs_store=False,
        ),
    ]
