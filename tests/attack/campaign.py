"""Runs attacks on one server in turn, with the probe beside them, and measures each."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import grpc

from tests.attack import attacks, worker_attacks
from tests.attack.arena import Arena, Memory, yield_the_processor
from tests.attack.identities import PROBE, Identities, Mode
from tests.attack.probe import Delays, Probe
from tests.attack.report import Report, Row
from tests.crash.tunnel import Tunnel
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess
from tests.support.stores import STORE_URL

ATTACKS: dict[str, attacks.Attack] = {
    attack.__name__: attack
    for attack in (
        attacks.bad_identities,
        attacks.cross_tenant_calls,
        worker_attacks.stolen_leases,
        worker_attacks.worker_that_never_works,
        attacks.watched_health,
        attacks.reflected_symbols,
        attacks.idle_connections,
        attacks.compressed_flood,
        attacks.stalled_requests,
        attacks.idle_imports,
        attacks.slow_greps,
        worker_attacks.many_ranges,
        attacks.deep_values,
        attacks.scanned_pins,
        attacks.large_flood,
        attacks.null_values,
    )
}
"""Those that cost a server most come last: what they leave behind would slow down the others."""
ONCE = {attacks.cross_tenant_calls.__name__}
"""Not repeated: what strangers made in the first round would be taken for the victim's in the second."""
SETTINGS = {
    # So that a worker loses jobs in seconds, and an honest one on a busy machine does not.
    "RUNEKEEP_FIRST_LEASE_SECONDS": "3",
    "RUNEKEEP_LEASE_SECONDS": "20",
    "RUNEKEEP_HEARTBEAT_SECONDS": "1",
    "RUNEKEEP_BACKOFF_FIRST_SECONDS": "0.5",
    "RUNEKEEP_BACKOFF_MAX_SECONDS": "1",
}
QUIET_SECONDS = 4.0
"""Before each attack; with the probe's rate 120 calls."""
ATTACK_SECONDS = 6.0
"""An attack that is over sooner is repeated."""
MAX_ATTACK_SECONDS = 120.0
AFTERMATH_SECONDS = 2.0
"""After an attack, and counted as part of it."""
SHORT_SIZE = 0.02
SHORT_SECONDS = 0.3
"""In place of these times in the short form, which judges no delay."""


def run(mode: Mode, store: str, names: Sequence[str], seed: str) -> Report:
    """Runs a campaign and reports its progress on standard error."""
    directory = Path(tempfile.mkdtemp(prefix=f"runekeep-attack-{mode}-{store}-"))
    print(f"mode {mode}, {store}, seed {seed}: logs in {directory}", file=sys.stderr, flush=True)
    postgres = PostgresServer().start() if store == "postgres" else None
    try:
        url = postgres.url(postgres.create()) if postgres else ""
        return asyncio.run(campaign(mode, store, directory, names, seed, url=url))
    finally:
        if postgres:
            postgres.stop()


async def campaign(
    mode: Mode, store: str, directory: Path, names: Sequence[str], seed: str, *, url: str = "", short: bool = False
) -> Report:
    """Starts a server in `directory` and attacks it. `url`: of PostgreSQL. `short`: small attacks, once each, by which
    no delay can be judged."""
    identities = Identities(mode, directory)
    settings = {**identities.settings, **SETTINGS}
    if not short:
        settings["RUNEKEEP_EMBEDDER"] = "minilm"
    if url:
        settings[STORE_URL] = url
    report = Report(mode, store, seed)
    server = ServerProcess(directory / "data", settings, quick=short)
    try:
        await asyncio.to_thread(server.start)
        await identities.enrol(server.address)
        await Campaign(server, identities, settings, report, short=short).run(names)
        server.terminate()
        try:
            await asyncio.to_thread(server.ended)
        except AssertionError as error:
            report.faults.append(f"the server ended badly: {error}"[:2000])
    finally:
        server.discard()
    return report


class Campaign:
    """One server under attack, with the probe beside."""

    def __init__(
        self, server: ServerProcess, identities: Identities, settings: dict[str, str], report: Report, *, short: bool
    ) -> None:
        self.report = report
        self.short = short
        self._server = server
        self._tunnel = Tunnel(int(server.address.rpartition(":")[2]))
        self._identities = identities
        self._settings = settings

    async def run(self, names: Sequence[str]) -> None:
        await self._tunnel.start()
        probe = Probe(self._server.address, self._identities.user(PROBE))
        try:
            await asyncio.to_thread(probe.start)
            if not self.short:
                # Only now, since the server and the probe would inherit it.
                yield_the_processor()
            arena = Arena(self._identities, self._server, self._tunnel, self._settings, SHORT_SIZE if self.short else 1)
            for name in names:
                await self._quiet(probe)
                row = await self._attack(name, arena, probe)
                self.report.rows.append(row)
                if not self.short:
                    print(f"  {name}: {row.seconds} s, {dict(row.codes)}", file=sys.stderr, flush=True)
            self.report.faults += await asyncio.to_thread(probe.stop)
        finally:
            probe.discard()
            await self._tunnel.stop()

    async def _quiet(self, probe: Probe) -> None:
        start = time.monotonic()
        await asyncio.sleep(SHORT_SECONDS if self.short else QUIET_SECONDS)
        self.report.quiet.append(Delays.of(await asyncio.to_thread(probe.between, start, time.monotonic())))

    async def _attack(self, name: str, arena: Arena, probe: Probe) -> Row:
        arena.begin(Random(f"{self.report.seed} {name}"))
        memory, sent, start = Memory(self._server), self._tunnel.sent, time.monotonic()
        rounds = 0
        is_repeated = not self.short and name not in ONCE
        while not rounds or (is_repeated and time.monotonic() < start + ATTACK_SECONDS):
            rounds += 1
            try:
                # One that still runs then has calls that are not answered, and the report says how many.
                with suppress(TimeoutError):
                    async with asyncio.timeout(MAX_ATTACK_SECONDS):
                        await ATTACKS[name](arena)
            except AssertionError as error:
                arena.breaches.append(" ".join(str(error).split())[:300] or repr(error))
            except grpc.aio.AioRpcError as error:
                # Of a call that only prepares an attack.
                arena.failures.append(f"the attack was cut short: {error.code().name} {error.details()}"[:300])
            finally:
                await arena.close()
        await asyncio.sleep(SHORT_SECONDS if self.short else AFTERMATH_SECONDS)
        end = time.monotonic()
        return Row(
            name,
            round(end - start, 1),
            rounds,
            self._tunnel.sent - sent,
            arena.started,
            dict(arena.codes),
            memory.growth(),
            Delays.of(await asyncio.to_thread(probe.between, start, end)),
            arena.breaches,
            arena.failures,
        )
