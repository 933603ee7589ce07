"""Asks OSV (https://osv.dev) for known vulnerabilities of what requirements.lock holds: `make audit`.

Ends with 0 when none is known, 1 when some are, and 75 when OSV did not answer for every package: then nothing is
known. make itself ends with 2 and prints that status.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

EXIT_VULNERABLE = 1
EXIT_NOT_AUDITED = 75
"""EX_TEMPFAIL of sysexits.h: the same may succeed later."""
OSV = "https://api.osv.dev/v1/query"
LOCK = Path(__file__).parents[1] / "requirements.lock"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--osv-url", default=OSV, metavar="URL", help="another address of OSV's API")
    parser.add_argument("--lock", type=Path, default=LOCK, metavar="FILE")
    flags = parser.parse_args()
    # The lock has hashes, so that nothing has to be resolved or installed.
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--format", "json"),
            *("--vulnerability-service", "osv", "--osv-url", flags.osv_url),
            *("--disable-pip", "--require-hashes", "--requirement", str(flags.lock)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        packages = json.loads(ended.stdout)["dependencies"]
    except ValueError:
        why = ended.stderr.strip().splitlines()[-1:] or ["no reason given"]
        return _not_audited(f"{flags.osv_url} cannot be used: {why[0]}")
    if skipped := [one["name"] for one in packages if "skip_reason" in one]:
        return _not_audited(f"{flags.osv_url} told nothing of {', '.join(skipped)}")
    if not packages:
        return _not_audited(f"{flags.lock} holds no package for this platform")
    found = [(one, each) for one in packages for each in one["vulns"]]
    for one, each in found:
        fixed = ", ".join(each["fix_versions"]) or "no version yet"
        print(f"{one['name']} {one['version']}: {each['id']}, fixed in {fixed}")
    print(f"{len(packages)} packages, {len(found)} known vulnerabilities")
    return EXIT_VULNERABLE if found else 0


def _not_audited(why: str) -> int:
    print(f"NOT AUDITED: {why}", file=sys.stderr)
    return EXIT_NOT_AUDITED


if __name__ == "__main__":
    sys.exit(main())
