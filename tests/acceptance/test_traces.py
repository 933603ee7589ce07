"""One commit is one trace, over four processes and a killed one; and metrics say what was done, and not what was said.

An application with the real SDK, a server, and extractors with the real Anthropic SDK send their spans by the real
exporters. The first extractor is killed while it waits for the model.
"""

import json
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, rpc_attributes

from runekeep import Client
from tests.acceptance.processes import environment, processes
from tests.acceptance.test_anthropic_end_to_end import WAIT_SECONDS, remembered
from tests.doubles.collector import Collector, Span
from tests.doubles.messages_api import MessagesApi, Request, Response, answer
from tests.support.pages import section
from tests.support.scrapes import Samples, metrics_address, scraped
from tests.support.server_process import ROOT
from tests.support.waiting import until

SAID = "I drink zirbelkiefer tea with my sister Wilhelmine."
WORDS = ("zirbelkiefer", "wilhelmine", "green tea", "web_search", "preferences")
"""Of the conversation, of the model's answer, and of names of memories; looked for in whatever the case is."""
DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "operate" / "observability.md"
USER, ACCOUNT, SESSION = "quirinus", "acme", "sofa-talk"

APPLICATION = f"""
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from runekeep import Client, NotFoundError, TextPart

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
with trace.get_tracer("application").start_as_current_span("answer a user"), Client() as client:
    session = client.session(session_id={SESSION!r})
    session.add_message("user", [TextPart({SAID!r})])
    session.add_message("assistant", [TextPart("Noted.")])
    try:
        client.read("viking://user/memories/preferences/Zirbelkiefer.md")
    except NotFoundError:
        pass
    print(session.commit()["task_id"])
provider.shutdown()
"""


@dataclass(frozen=True)
class Story:
    """What was seen of it."""

    spans: Sequence[Span]
    wire: bytes
    task_id: str
    server_log: str
    worker_log: str
    server_metrics: Samples
    worker_metrics: Samples
    tokens: Counter[str]
    memories: int
    model_headers: set[str]
    """Of all calls of the model, by name."""

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    @property
    def trace_id(self) -> str:
        (root,) = self.named("answer a user")
        return root.trace_id


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    directory = tmp_path_factory.mktemp("traces")
    asked, release, held_once = threading.Event(), threading.Event(), threading.Lock()

    def held(request: Request) -> Response:
        if held_once.acquire(blocking=False):
            asked.set()
            release.wait(WAIT_SECONDS)
        return answer(remembered)(request)

    with Collector() as collector, MessagesApi() as api, processes(directory) as fleet:
        api.otherwise = held
        fleet.server(
            **collector.environment,
            RUNEKEEP_METRICS_ADDRESS="127.0.0.1:0",
            RUNEKEEP_LEASE_SECONDS="2",
            RUNEKEEP_HEARTBEAT_SECONDS="0.5",
            RUNEKEEP_FIRST_LEASE_SECONDS="2",
        )
        settings = {
            **collector.environment,
            "RUNEKEEP_EXTRACTOR_METRICS_ADDRESS": "127.0.0.1:0",
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "any",
            "RUNEKEEP_EXTRACTOR_STRUCTURED_OUTPUT": "on",
            "RUNEKEEP_EXTRACTOR_TOOLS": "on",
            # By which the SDK would tell a collector all that is said; it must not be heard.
            "ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE": "content",
        }
        killed = fleet.extractor("killed", "--concurrency", "1", **settings)
        try:
            task_id = _application(fleet.address, collector)
            assert asked.wait(WAIT_SECONDS), fleet.log()
            # What it did before it asked the model is to be told: it will tell no more.
            collector.wait_for(lambda spans: any(span.name == "prefetch" for span in spans))
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            fleet.extractor("second", "--concurrency", "1", **settings)
            with Client(fleet.address, account=ACCOUNT, user=USER) as client:
                task = client.wait_task(task_id, timeout=WAIT_SECONDS)
                assert task["status"] == "completed", fleet.log()
                assert "green tea" in client.read("viking://user/memories/preferences/Tea.md")
                client.find("zirbelkiefer", min_revision=1)
                memories = len(client.memory_diff(task["archive_uri"])["operations"]["adds"])
            wanted = {"attempt commit", "index memories", "index passages"}
            spans = collector.wait_for(lambda spans: wanted <= {span.name for span in spans})
            server_log, worker_log = (directory / "data.log", directory / "second.log")
            yield Story(
                spans,
                collector.wire,
                task_id,
                server_log.read_text(),
                worker_log.read_text(),
                _told_whole(metrics_address(server_log)),
                scraped(metrics_address(worker_log)),
                _tokens(task["result"]["usage"]),
                memories,
                {name for request in api.requests for name in request.headers},
            )
        finally:
            release.set()


def _told_whole(address: str) -> Samples:
    """A scrape in which store and index answered in time: without them it says nothing of them."""
    found: list[Samples] = []

    def whole() -> bool:
        found.append(scraped(address))
        return found[-1]["runekeep_backlog_known", {}] == 1 and bool(found[-1].all("runekeep_index_points"))

    until(whole)
    return found[-1]


def _tokens(usage: Sequence[Mapping[str, Any]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for entry in usage:
        total.update({name: count for name, count in entry.items() if name.endswith("_tokens")})
    return total


def _application(address: str, collector: Collector) -> str:
    """Runs the application; the task of its commit."""
    about = {"RUNEKEEP_ADDRESS": address, "RUNEKEEP_ACCOUNT": ACCOUNT, "RUNEKEEP_USER": USER}
    ended = subprocess.run(
        [sys.executable, "-c", APPLICATION],
        cwd=ROOT,
        env=environment({**about, **collector.environment, "OTEL_SERVICE_NAME": "application"}),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_the_spans_of_a_commit_form_one_tree_over_all_processes(story: Story) -> None:
    ours = {span.span_id: span for span in story.spans if span.trace_id == story.trace_id}
    assert len(ours) == len([span for span in story.spans if span.trace_id == story.trace_id]), "ids are unique"
    (root,) = [span for span in ours.values() if not span.parent]
    assert root.name == "answer a user"

    # What the killed extractor was in the midst of nobody tells. What it had done before hangs together all the same.
    assert not [span.name for span in ours.values() if span.parent and span.parent not in ours]
    (lost,) = story.named("lost attempt commit")
    assert "load input" in {span.name for span in ours.values() if span.parent == lost.span_id}

    def way(span: Span) -> list[tuple[str, str]]:
        above = ours.get(span.parent)
        return [*(way(above) if above else ()), (span.service, span.name)]

    commit = "runekeep.v1.SessionService/CommitSession"
    committed = [("application", "answer a user"), ("application", commit), ("runekeep-server", commit)]
    attempted = [*committed, ("runekeep-extractor", "attempt commit")]
    (call,) = story.named("chat claude-sonnet-5-5")
    assert way(call) == [*attempted, ("runekeep-extractor", call.name)]
    (applied,) = story.named("apply commit")
    assert way(applied) == [*attempted, ("runekeep-extractor", "deliver output"), ("runekeep-server", "apply commit")]
    assert way(lost) == [*committed, ("runekeep-server", "lost attempt commit")]
    for name in ("index memories", "index passages"):
        (relayed,) = story.named(name)
        assert way(relayed) == [*committed, ("runekeep-server", name)]
        assert {span.name for span in ours.values() if span.parent == relayed.span_id} >= {"index upsert"}
    (embedded,) = [span for span in story.named("embed") if span.parent == relayed.span_id]
    assert embedded.attributes["runekeep.texts"] == 2


def test_a_lost_attempt_and_the_one_after_it_say_what_became_of_them(story: Story) -> None:
    (lost,), (second,) = story.named("lost attempt commit"), story.named("attempt commit")
    assert lost.failed and lost.attributes["error.type"] == "lease_expired"
    assert not second.failed and second.attributes["runekeep.job.outcome"] == "applied"
    assert (lost.attributes["runekeep.job.attempt"], second.attributes["runekeep.job.attempt"]) == (1, 2)
    assert lost.attributes["runekeep.worker.id"] == "killed"
    assert lost.start < lost.end <= second.start
    assert {lost.attributes["runekeep.job.id"], second.attributes["runekeep.job.id"]} == {story.task_id}


def test_calls_have_the_attributes_of_the_conventions_and_only_faults_count_as_failed(story: Story) -> None:
    method = "runekeep.v1.SessionService/CommitSession"
    asked, served = story.named(method)[::-1] if story.named(method)[0].kind == "SERVER" else story.named(method)
    assert (asked.kind, served.kind) == ("CLIENT", "SERVER")
    for span in (asked, served):
        assert span.attributes[rpc_attributes.RPC_SYSTEM_NAME] == "grpc"
        assert span.attributes[rpc_attributes.RPC_METHOD] == method
        assert span.attributes[rpc_attributes.RPC_RESPONSE_STATUS_CODE] == "OK"
    assert served.attributes["runekeep.account"] == ACCOUNT
    missed = story.named("runekeep.v1.MemoryService/ReadDocument")
    by_kind = {span.kind: span for span in missed if span.attributes["rpc.response.status_code"] == "NOT_FOUND"}
    assert by_kind["CLIENT"].failed and not by_kind["SERVER"].failed
    assert by_kind["SERVER"].attributes["runekeep.error.reason"] == "RESOURCE_NOT_FOUND"


def test_model_calls_tell_their_tokens_and_why_they_stopped(story: Story) -> None:
    (call,) = story.named("chat claude-sonnet-5-5")
    assert call.kind == "CLIENT"
    told = call.attributes
    assert told[gen_ai_attributes.GEN_AI_OPERATION_NAME] == "chat"
    assert told[gen_ai_attributes.GEN_AI_PROVIDER_NAME] == "anthropic"
    assert told[gen_ai_attributes.GEN_AI_REQUEST_MODEL] == "claude-sonnet-5-5"
    assert told[gen_ai_attributes.GEN_AI_RESPONSE_FINISH_REASONS] == ["end_turn"]
    spent = story.tokens
    assert told[gen_ai_attributes.GEN_AI_USAGE_OUTPUT_TOKENS] == spent["output_tokens"] > 0
    assert told[gen_ai_attributes.GEN_AI_USAGE_INPUT_TOKENS] == sum(
        spent[name] for name in ("input_tokens", "cache_read_tokens", "cache_write_tokens")
    )


def test_the_log_lines_of_a_commit_name_its_trace(story: Story) -> None:
    def lines(log: str, **wanted: str) -> list[dict[str, Any]]:
        told = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        return [line for line in told if all(line.get(name) == value for name, value in wanted.items())]

    (call,) = lines(story.server_log, event="call_ended", rpc="SessionService/CommitSession")
    assert call["trace"] == story.trace_id
    (started,) = lines(story.worker_log, event="job_started")
    assert (started["trace"], started["task_id"]) == (story.trace_id, story.task_id)


def test_nothing_that_was_said_is_in_spans_and_metrics(story: Story) -> None:
    told = {"spans": story.wire.lower(), "metrics": f"{story.server_metrics}{story.worker_metrics}".lower().encode()}
    for place, text in told.items():
        assert len(text) > 1000
        found = [word for word in (*WORDS, USER, SESSION) if word.encode() in text]
        assert not found, f"{found} in the {place}"
    # Nor does the model server learn of the trace.
    assert (
        "anthropic-version" in story.model_headers
        and not {"traceparent", "tracestate", "baggage"} & story.model_headers
    )
    assert ACCOUNT.encode() not in told["metrics"]
    assert ACCOUNT.encode() in told["spans"]


def test_the_server_counts_what_was_done(story: Story) -> None:
    count = story.server_metrics
    assert count["runekeep_claims_total", {"kind": "commit"}] == 2
    assert count.all("runekeep_attempts_total", "kind", "outcome") == {
        ("commit", "applied"): 1,
        ("commit", "lease_expired"): 1,
    }
    assert count["runekeep_leases_lost_total", {"kind": "commit"}] == 1
    assert count["runekeep_job_wait_seconds_count", {"kind": "commit"}] == 1
    assert count["runekeep_apply_seconds_count", {"kind": "commit", "result": "applied"}] == 1
    assert count["runekeep_workers", {}] == 1
    assert count["runekeep_jobs", {"kind": "commit", "state": "pending"}] == 0
    assert count["runekeep_relay_points_total", {"part": "memories"}] == story.memories
    assert count["runekeep_relay_points_total", {"part": "passages"}] == 2
    assert count["runekeep_index_points", {}] in range(story.memories + 3), "it is counted once a minute only"
    assert count["runekeep_relay_revisions", {}] == count["runekeep_relay_messages", {}] == 0
    assert count["runekeep_backlog_known", {}] == 1
    calls = {"method": "SessionService/CommitSession", "code": "OK"}
    assert count["runekeep_rpc_seconds_count", calls] == 1
    missed = {"method": "MemoryService/ReadDocument", "code": "NOT_FOUND"}
    assert count["runekeep_rpc_seconds_count", missed] == 1
    assert count["runekeep_rpc_errors_total", {"reason": "RESOURCE_NOT_FOUND"}] == 1
    assert count["runekeep_index_process_resident_memory_bytes", {}] > 1_000_000
    assert count["runekeep_build_info", {"process": "server"}] == 1


def test_the_extractor_counts_what_its_model_cost(story: Story) -> None:
    count = story.worker_metrics
    assert count["runekeep_extractor_attempt_seconds_count", {"kind": "commit", "outcome": "applied"}] == 1
    assert count["runekeep_model_seconds_count", {"model": "claude-sonnet-5-5", "phase": "operations"}] == 1
    tokens = {kind: number for (kind,), number in count.all("runekeep_model_tokens_total", "kind").items()}
    assert tokens == {kind: story.tokens[f"{kind}_tokens"] for kind in ("input", "output", "cache_read", "cache_write")}
    assert count["runekeep_extractor_connected", {}] == 1
    assert count["runekeep_build_info", {"process": "extractor"}] == 1


def metrics_in(text: str) -> set[str]:
    """Names of ours, and of processes, in expressions."""
    return set(re.findall(r"\b(?:runekeep|process)_[a-z_]+\b", text)) - {"process_"}


def _family(name: str) -> str:
    return re.sub("_(bucket|count|sum)$", "", name)


def test_every_metric_of_the_dashboard_and_of_the_alerts_is_there(story: Story) -> None:
    board = json.loads((DEPLOY / "grafana" / "runekeep.json").read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    rules = [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    exposed = story.server_metrics.declared | story.worker_metrics.declared
    asked = metrics_in(" ".join([*shown, *rules]))
    assert len(asked) > 40
    assert asked <= exposed, f"nobody exposes {asked - exposed}"
    # A metric that nobody looks at is one too many.
    looked_at = {_family(name) for name in metrics_in(" ".join(shown))}
    assert {name for name in map(_family, exposed) if re.match("runekeep_(?!index_process_)", name)} <= looked_at
    rows = [panel["title"] for panel in board["panels"] if panel["type"] == "row"]
    assert rows == ["Traffic", "Jobs", "Extraction and model tokens", "Store", "Index", "Processes"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_the_labels_that_the_dashboard_and_the_alerts_go_by_are_there(story: Story) -> None:
    """`by (...)`, `{...}` and `{{...}}` of what was scraped with values: a label that is none shows nothing."""
    labels: dict[str, set[str]] = {}
    for scrape in (story.server_metrics, story.worker_metrics):
        for sample in scrape.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    board = json.loads((DEPLOY / "grafana" / "runekeep.json").read_text())
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    expressions += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    of_prometheus = {"instance", "job"}
    looked_at = 0
    for expression in expressions:
        known = [labels.get(name) for name in metrics_in(expression)]
        if None in known:
            # Of something that did not happen here.
            continue
        told = {name for part in re.findall(r"by \(([^)]*)\)", expression) for name in re.findall(r"\w+", part)}
        told |= {name for part in re.findall(r"\{([^}]*)\}", expression) for name in re.findall(r"(\w+)\s*[=!]", part)}
        looked_at += len(told - of_prometheus)
        assert told - of_prometheus <= set().union(*filter(None, known)), expression
    assert looked_at > 40


def test_the_page_has_every_metric_with_its_meaning(story: Story) -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    told = dict(re.findall(r"^\| `(runekeep_[a-z_]+)` \| \w+ \| (.*) \|$", page, re.MULTILINE))
    families = {**story.server_metrics.families, **story.worker_metrics.families}
    meant = {
        family.name + ("_total" if family.type == "counter" else ""): family.documentation
        for family in families.values()
        if family.name.startswith("runekeep_") and not family.name.startswith("runekeep_index_process_")
    }
    assert told == meant


def test_the_page_has_every_span_with_what_is_said_of_it(story: Story) -> None:
    lines = re.findall(r"^\| `([^`]+)` \| (.*?) \| .*? \|(.*)\|$", section(PAGE, "Spans"), re.MULTILINE)
    rows = {name: (of, set(re.findall(r"`([^`]+)`", said))) for name, of, said in lines}
    written = {
        name
        for room in ("server", "storage", "extractor")
        for path in (ROOT / room).rglob("*.py")
        for name in re.findall(r"tracing\.(?:span|batch)\(\s*f?\"([^\"]+)\"", path.read_text())
    }
    assert {re.sub(r"\{[^}]*\}", "*", name) for name in written} | {"runekeep.v1.*/*"} == {
        re.sub(r"\{[^}]*\}", "*", name) for name in rows
    }
    rows["lost attempt {kind}"][1].update(rows["attempt {kind}"][1])
    seen = set()
    for span in story.spans:
        if span.name == "answer a user":
            continue
        patterns = {one: re.sub(r"\\\{\w+\\\}", r"[\\w.-]+", re.escape(one)) for one in rows}
        name = span.name if span.name in rows else next(one for one in rows if re.fullmatch(patterns[one], span.name))
        of, said = rows[name]
        seen.add(name)
        assert set(span.attributes) - {"error.type"} <= said, f"{span.name} says more than the page"
        assert span.service.removeprefix("runekeep-") in of or span.service == "application"
    assert len(seen) > 10


def test_the_page_says_what_to_do_at_each_alert() -> None:
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    names = [rule["alert"] for group in alerts["groups"] for rule in group["rules"]]
    assert set(re.findall(r"^\| `(Runekeep\w+)` \|", section(PAGE, "Alerts"), re.MULTILINE)) == set(names)


def test_metrics_are_at_their_path_and_nowhere_else(story: Story) -> None:
    with pytest.raises(HTTPError, match="404"):
        urllib.request.urlopen(f"http://{story.server_metrics.address}/", timeout=WAIT_SECONDS)
