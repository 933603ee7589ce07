"""Builds the server from the settings: store, dispatcher and services."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

import structlog
from pydantic import SecretStr

from runekeep.v1 import (
    admin_service_pb2_grpc,
    extractor_service_pb2_grpc,
    history_service_pb2_grpc,
    memory_service_pb2_grpc,
    proposal_service_pb2_grpc,
    session_service_pb2_grpc,
    space_service_pb2_grpc,
    task_service_pb2_grpc,
    turn_memory_service_pb2_grpc,
)
from runekeep_schemas.type_files.registry import Registry
from runekeep_schemas.type_files.schema_file import SchemaError
from runekeep_server.access import open_access
from runekeep_server.admin.accounts import Accounts
from runekeep_server.admin.embedder_changes import EmbedderChanges
from runekeep_server.admin.service import AdminService
from runekeep_server.admin.status import ServerStatus
from runekeep_server.app import Lifecycle, Service, StartError
from runekeep_server.asks.asking import Asking
from runekeep_server.extraction.extraction import Extraction
from runekeep_server.extraction.service import ExtractorService
from runekeep_server.history.service import HistoryService
from runekeep_server.memories.relevance_file import RelevanceFileError, load_calibrations
from runekeep_server.memories.service import MemoryService
from runekeep_server.proposals.service import ProposalService
from runekeep_server.protocol.answer_sizes import AnswerSizes
from runekeep_server.rpc.limits import Limits
from runekeep_server.sessions.append_streams import AppendStreams
from runekeep_server.sessions.appending import Appending
from runekeep_server.sessions.auto_commit import IdleCommits
from runekeep_server.sessions.commits import Commits
from runekeep_server.sessions.service import SessionService
from runekeep_server.settings import Settings
from runekeep_server.settings.account_endpoints import AccountEndpoint, AccountReranker, endpoints_of
from runekeep_server.settings.groups import EmbeddingSettings
from runekeep_server.spaces.erasures import Erasures
from runekeep_server.spaces.importing import Imports
from runekeep_server.spaces.service import SpaceService
from runekeep_server.tasks.prices import Price, PriceFileError, load_prices
from runekeep_server.tasks.service import TaskService
from runekeep_server.tasks.watchers import Watchers
from runekeep_server.telemetry.exposing import CannotListen, open_metrics, open_tracing
from runekeep_server.telemetry.standing import BacklogCache
from runekeep_server.turns.service import TurnMemoryService
from runekeep_storage.database import Topic
from runekeep_storage.embedders import EmbeddingOptions
from runekeep_storage.errors import DataDirectoryInUse, DataDirectoryUnusable, StoreError, StoreUnreachable
from runekeep_storage.index.base import DatatypeMismatch, IndexMismatch, IndexTooOld, VectorDatatype
from runekeep_storage.relay.relay import PASSAGES
from runekeep_storage.rerankers import RerankOptions
from runekeep_storage.search.ranking import Ranking
from runekeep_storage.search.relevance import Calibration
from runekeep_storage.store import POSTGRES_SCHEMES, SQLITE_SCHEME, Store, StoreOptions

log = structlog.get_logger(__name__)


def store_options(settings: Settings) -> StoreOptions:
    """Returns the options of the store. Raises StartError for a store URL with an unsupported scheme."""
    if settings.store_url and not settings.store_url.startswith((*POSTGRES_SCHEMES, SQLITE_SCHEME)):
        # Only the scheme: the rest of the URL may contain a password.
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
        embedding=embedding_options(settings),
        next_embedding=next_embedding_options(settings),
        reranker=settings.reranker,
        rerank=rerank_options(settings),
        index_url=settings.index_url,
        index_api_key=settings.index_api_key.get_secret_value() or None,
        index_datatype=VectorDatatype(settings.index_datatype),
        blob_dir=settings.blob_dir,
        blob_url=settings.blob_url,
        poll_seconds=settings.poll_seconds,
        index_check_seconds=settings.index_check_seconds,
        erasure_purge_seconds=settings.erasure_purge_seconds,
        accept_data_loss=settings.accept_data_loss,
        start_check_seconds=settings.start_check_seconds,
        data_check_seconds=settings.data_check_seconds,
        blob_check_bytes_per_second=settings.blob_check_bytes_per_second,
        withhold_secrets=settings.withhold_secrets,
        ranking=Ranking(**settings.search.model_dump()),
    )


def embedding_options(settings: Settings) -> EmbeddingOptions:
    """Returns the options of the embedders `openai` and `fastembed`."""
    return _embedding_options(settings, "embedding", settings.embedding, settings.embedder_api_key)


def rerank_options(settings: Settings) -> RerankOptions:
    """Returns the options of the rerankers `endpoint` and `fastembed`."""
    options = RerankOptions(**settings.rerank.model_dump(), api_key=settings.reranker_api_key.get_secret_value())

    def of(endpoint: AccountEndpoint) -> RerankOptions:
        assert isinstance(endpoint, AccountReranker)
        model = endpoint.model or options.model
        return replace(options, url=endpoint.url, api_key=endpoint.key, form=endpoint.form, model=model)

    accounts = endpoints_of(settings.account_endpoints, "rerank")
    return replace(options, by_account={account: of(one) if one else None for account, one in accounts.items()})


def next_embedding_options(settings: Settings) -> EmbeddingOptions:
    """Returns the options of an embedder to change to."""
    return _embedding_options(settings, "next_embedding", settings.next_embedding, settings.next_embedder_api_key)


def _embedding_options(settings: Settings, kind: str, described: EmbeddingSettings, key: SecretStr) -> EmbeddingOptions:
    options = EmbeddingOptions(**described.model_dump(), api_key=key.get_secret_value())
    accounts = endpoints_of(settings.account_endpoints, kind)
    by_account = {account: replace(options, url=one.url, api_key=one.key) for account, one in accounts.items() if one}
    return replace(options, by_account=by_account)


def load_registry(settings: Settings) -> Registry:
    """Loads the memory types. Raises StartError for a bad type file, with its name, line and reason."""
    try:
        return Registry.load(settings.types_dirs)
    except SchemaError as error:
        raise StartError(f"types_dirs (RUNEKEEP_TYPES_DIRS): {error}") from error


def read_prices(settings: Settings) -> Mapping[str, Price]:
    """Reads the prices of models. Raises StartError for a bad file, with its entry and reason."""
    if settings.prices_file is None:
        return {}
    try:
        return load_prices(settings.prices_file)
    except PriceFileError as error:
        raise StartError(f"prices_file (RUNEKEEP_PRICES_FILE): {error}") from error


def read_calibrations(settings: Settings) -> Mapping[str, Calibration]:
    """Reads the relevance curves of further embedders. Raises StartError for a bad file, with its entry and reason."""
    if settings.relevance_file is None:
        return {}
    try:
        return load_calibrations(settings.relevance_file)
    except RelevanceFileError as error:
        raise StartError(f"relevance_file (RUNEKEEP_RELEVANCE_FILE): {error}") from error


async def build_services(settings: Settings, lifecycle: Lifecycle) -> Sequence[Service]:
    """Opens the store and returns the services. Raises StartError."""
    server_id = f"server-{uuid4().hex[:8]}"
    open_tracing(server_id, lifecycle)
    registry = load_registry(settings)
    prices = read_prices(settings)
    calibrations = read_calibrations(settings)
    try:
        store = Store(replace(store_options(settings), calibrations=calibrations), registry)
    except ValueError as error:
        raise StartError(f"blob_url (RUNEKEEP_BLOB_URL): {error}") from error
    lifecycle.on_close(store.close)
    store.guard.on_lost = lifecycle.fail
    try:
        await store.open()
    except IndexTooOld as error:
        raise StartError(f"index_url (RUNEKEEP_INDEX_URL): {error}") from error
    except DatatypeMismatch as error:
        raise StartError(f"index_datatype (RUNEKEEP_INDEX_DATATYPE): {error}") from error
    except IndexMismatch as error:
        raise StartError(f"embedder (RUNEKEEP_EMBEDDER): {error}") from error
    except StoreError as error:
        of_url = settings.store_url and not isinstance(error, DataDirectoryInUse | DataDirectoryUnusable)
        setting = "store_url (RUNEKEEP_STORE_URL)" if of_url else "data_dir (RUNEKEEP_DATA_DIR)"
        raise StartError(f"{setting}: {error}", temporary=isinstance(error, StoreUnreachable)) from error
    if calibrations and store.embedder is not None and store.embedder.model not in calibrations:
        # Such as a misspelled model, after which nothing has a relevance.
        log.warning("relevance_file_lacks_embedder", model=store.embedder.model, file=str(settings.relevance_file))
    limits = Limits(settings.limits)
    accounts = Accounts(store.all_spaces, store.blobs, limits, settings.limits)
    keys = open_access(settings, store.all_spaces, limits, lifecycle)
    watchers = Watchers(store.database, settings.poll_seconds)
    extraction = Extraction(store, settings, watchers, server_id)
    standings = BacklogCache(store.all_spaces)
    sizes = AnswerSizes.of(settings.max_message_bytes)
    try:
        open_metrics(settings, store, standings, lifecycle)
    except CannotListen as error:
        raise StartError(f"metrics_address (RUNEKEEP_METRICS_ADDRESS): {error}") from error

    def committed() -> None:
        extraction.wake()
        store.relay.wake(PASSAGES)

    def heard(topic: Topic, subject: str) -> None:
        match topic:
            case Topic.JOBS:
                extraction.wake()
            case Topic.TASK:
                watchers.heard(subject)
            case Topic.INDEX:
                store.relay.heard(subject)

    commits = Commits(registry, settings, committed)
    appending = Appending(store, settings, commits)
    append_streams = AppendStreams(appending, limits, lifecycle.bodies, settings)
    idle_commits = IdleCommits(store.database, commits, settings.poll_seconds)
    await store.all_spaces.listen(heard)
    lifecycle.probe = store.probe
    lifecycle.on_start(accounts.start)
    lifecycle.on_start(extraction.start)
    lifecycle.on_start(watchers.start)
    lifecycle.on_start(idle_commits.start)
    lifecycle.on_drain(extraction.drain)
    lifecycle.on_drain(watchers.drain)
    lifecycle.on_drain(append_streams.drain)
    lifecycle.on_close(accounts.close)
    lifecycle.on_close(extraction.close)
    lifecycle.on_close(watchers.close)
    lifecycle.on_close(idle_commits.close)
    asking = Asking(
        store,
        settings,
        watchers,
        prices,
        has_worker=extraction.connections.answer_questions,
        on_queued=extraction.wake,
        cancel=extraction.cancel_question,
    )
    embedder_changes = EmbedderChanges(store, settings)
    tasks = TaskService(
        store,
        watchers,
        account_daily_token_budget=settings.account_daily_token_budget,
        buckets_enabled=settings.buckets_enabled,
        cancelled=extraction.cancel,
        queued=extraction.wake,
        prices=prices,
        sizes=sizes,
    )
    return [
        Service(
            session_service_pb2_grpc.add_SessionServiceServicer_to_server,
            SessionService(store, settings, commits, appending, append_streams, cancelled=extraction.cancel),
            "runekeep.v1.SessionService",
        ),
        Service(
            memory_service_pb2_grpc.add_MemoryServiceServicer_to_server,
            MemoryService(
                store,
                ask=asking.ask,
                cancelled=extraction.cancel,
                withhold_secrets=settings.withhold_secrets,
                sizes=sizes,
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
            TurnMemoryService(store, settings, queued=extraction.wake),
            "runekeep.v1.TurnMemoryService",
        ),
        Service(
            proposal_service_pb2_grpc.add_ProposalServiceServicer_to_server,
            ProposalService(store, settings),
            "runekeep.v1.ProposalService",
        ),
        Service(task_service_pb2_grpc.add_TaskServiceServicer_to_server, tasks, "runekeep.v1.TaskService"),
        Service(
            space_service_pb2_grpc.add_SpaceServiceServicer_to_server,
            SpaceService(
                store,
                Erasures(store, ended=extraction.cancel, queued=extraction.wake),
                Imports(
                    store,
                    most_bytes=settings.max_import_bytes,
                    limits=settings.limits,
                    lease_seconds=settings.lease_seconds,
                    queued=extraction.wake,
                ),
            ),
            "runekeep.v1.SpaceService",
        ),
        Service(
            extractor_service_pb2_grpc.add_ExtractorServiceServicer_to_server,
            ExtractorService(store, settings, extraction),
            "runekeep.v1.ExtractorService",
        ),
        Service(
            admin_service_pb2_grpc.add_AdminServiceServicer_to_server,
            AdminService(
                store.all_spaces,
                accounts,
                ServerStatus(store, settings, standings, extraction, embedder_changes),
                embedder_changes,
                key_changed=keys.forget,
            ),
            "runekeep.v1.AdminService",
            # It reports the status even if the store is unavailable.
            needs_store=False,
        ),
    ]
