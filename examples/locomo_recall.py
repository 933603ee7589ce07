"""How much of the evidence a search finds, on conversations of the LoCoMo data set (github.com/snap-research/locomo).

    runekeep up --data-dir /tmp/recall &
    python examples/locomo_recall.py locomo10.json

Takes every conversation in through `runekeep ingest`, one user each, then asks each question of the categories 1 to 4
that names its evidence, with `find` over passages alone. Recall at k is the share of a question's evidence turns among
its first k results; the figures are means over questions, and then over conversations. The last line is JSON.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

from runekeep import Client
from runekeep.cli.supervise import child_environment, module_command
from runekeep.transcripts.batches import safe_id
from runekeep.transcripts.locomo import message_id

DEPTHS = (5, 10, 20)
CATEGORIES = {1, 2, 3, 4}
CALLS_AT_ONCE = 4
_TURN = re.compile(r"D:?(\d+):(\d+)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--address", default=None, help="server (RUNEKEEP_ADDRESS, else 127.0.0.1:7433)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this conversation; may repeat"
    )
    parser.add_argument("--asked-only", action="store_true", help="the conversations were taken in already")
    options = parser.parse_args()
    samples = json.loads(options.file.read_text(encoding="utf-8"))
    samples = [sample for sample in samples if not options.only or sample["sample_id"] in options.only]
    if not samples:
        parser.error("no conversation of the file has that name")

    taken_in = {} if options.asked_only else ingest(options.file, options.address, options.only)
    by_conversation = {}
    for sample in samples:
        name = sample["sample_id"]
        by_conversation[name] = recall(sample, options.address)
        figures = "  ".join(f"@{depth} {by_conversation[name][f'recall@{depth}']:.3f}" for depth in DEPTHS)
        print(f"{name}: {figures}  ({by_conversation[name]['questions']} questions)", flush=True)
    keys = [f"recall@{depth}" for depth in DEPTHS]
    means = {key: round(mean(figures[key] for figures in by_conversation.values()), 4) for key in keys}
    print("mean:", "  ".join(f"{key} {value:.3f}" for key, value in means.items()))
    if taken_in:
        print(f"{taken_in['commits']} commits, {taken_in['yielded_nothing']} of them yielded nothing")
    kept = {key: taken_in[key] for key in ("messages", "commits", "yielded_nothing", "outcomes") if key in taken_in}
    print(json.dumps({**means, "conversations": by_conversation, **kept}))
    return 0


def ingest(file: Path, address: str | None, only: list[str]) -> dict[str, Any]:
    """Commits every session of the file; its summary as `runekeep ingest --json` tells it."""
    arguments = ["ingest", str(file), "--form", "locomo", "--json"]
    arguments += ["--address", address] if address else []
    arguments += [word for name in only for word in ("--only", safe_id(name))]
    done = subprocess.run(
        module_command("runekeep", arguments), stdout=subprocess.PIPE, env=child_environment(), check=False
    )
    if done.returncode != 0:
        sys.exit(f"ingest ended with {done.returncode}: {done.stdout.decode()[:2000]}")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def recall(sample: dict[str, Any], address: str | None) -> dict[str, float]:
    """Mean recall over the questions of one conversation."""
    questions = [(question["question"], evidence(question)) for question in sample["qa"]]
    questions = [(text, turns) for text, turns in questions if turns]
    with Client(address, user=safe_id(sample["sample_id"])) as client, ThreadPoolExecutor(CALLS_AT_ONCE) as threads:
        while client.find("anything", kinds=["passage"])["pending_passages"]:
            time.sleep(0.5)

        def ranked(text: str) -> list[str]:
            found = client.find(text, kinds=["passage"], limit=max(DEPTHS))
            return [item["message_id"] for item in found["results"]]

        rankings = list(threads.map(ranked, [text for text, _ in questions]))
    figures: dict[str, float] = {"questions": len(questions)}
    for depth in DEPTHS:
        shares = [
            len(turns & set(ranking[:depth])) / len(turns)
            for (_, turns), ranking in zip(questions, rankings, strict=True)
        ]
        figures[f"recall@{depth}"] = round(mean(shares), 4)
    return figures


def evidence(question: dict[str, Any]) -> set[str]:
    """Ids of the messages that answer a question; empty for one that is not to be asked.

    The data set writes some as `D8:6; D9:17` or `D:11:26`.
    """
    if question["category"] not in CATEGORIES:
        return set()
    found = _TURN.findall(" ".join(question.get("evidence", [])))
    return {message_id(f"D{int(session)}:{int(turn)}") for session, turn in found}


if __name__ == "__main__":
    sys.exit(main())
