"""`make audit`: asks OSV (https://osv.dev) for known vulnerabilities of the packages in requirements.lock.

The exit status is 0 if none is known, 1 if some are, and 75 if OSV did not answer for every package, so that the result
is incomplete. make itself exits with 2 and prints that status.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

EXIT_VULNERABLE = 1
EXIT_NOT_AUDITED = 75
"""EX_TEMPFAIL of sysexits.h: a later attempt may succeed."""
OSV = "https://api.osv.dev/v1/query"
LOCK = Path(__file__).parents[1] / "requirements.lock"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--osv-url", default=OSV, metavar="URL", help="another address of OSV's API")
    parser.add_argument("--lock", type=Path, default=LOCK, metavar="FILE")
    flags = parser.parse_args()
    # The lock has hashes, so pip-audit need not resolve or install anything.
    result = subprocess.run(
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
        packages = json.loads(result.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last_line = result.stderr.strip().splitlines()[-1:] or ["no reason given"]
        return _report_not_audited(f"{flags.osv_url} cannot be used: {last_line[0]}")
    if skipped := [package["name"] for package in packages if "skip_reason" in package]:
        return _report_not_audited(f"{flags.osv_url} did not answer for {', '.join(skipped)}")
    if not packages:
        return _report_not_audited(f"{flags.lock} has no package for this platform")
    found = [(package, vulnerability) for package in packages for vulnerability in package["vulns"]]
    for package, vulnerability in found:
        fixed = ", ".join(vulnerability["fix_versions"]) or "no version yet"
        print(f"{package['name']} {package['version']}: {vulnerability['id']}, fixed in {fixed}")
    print(f"{len(packages)} packages, {len(found)} known vulnerabilities")
    return EXIT_VULNERABLE if found else 0


def _report_not_audited(reason: str) -> int:
    print(f"NOT AUDITED: {reason}", file=sys.stderr)
    return EXIT_NOT_AUDITED


if __name__ == "__main__":
    sys.exit(main())
