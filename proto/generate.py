"""Writes the Python stubs of the contract under runekeep/, or checks that they are fresh.

python proto/generate.py            write
python proto/generate.py --check    exit 1 and name the files that differ
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "runekeep"

# Generated code imports by proto path; the third-party file must not claim a top-level package called `buf`.
REWRITES = (("from buf.validate import", "from runekeep.buf.validate import"),)


def generate() -> dict[Path, str]:
    """Generated files by their path below runekeep/."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["buf", "generate", "-o", folder], cwd=ROOT, check=True)
        out = Path(folder)
        files = {}
        for path in sorted(out.rglob("*.py*")):
            place = path.relative_to(out)
            if place.parts[0] == "google" or ("_grpc" in path.name and "runekeep" not in place.parts):
                continue
            text = path.read_text()
            for old, new in REWRITES:
                text = text.replace(old, new)
            if path.suffix == ".pyi":
                text = text.replace("buf.validate.validate_pb2", "runekeep.buf.validate.validate_pb2")
            files[place if place.parts[0] == "buf" else place.relative_to("runekeep")] = text
        return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    files = generate()
    present = {
        p.relative_to(TARGET)
        for d in ("v1", "buf")
        for p in (TARGET / d).rglob("*_pb2*")
        if p.suffix in (".py", ".pyi")
    }
    stale = sorted(present - files.keys())
    for place, text in files.items():
        path = TARGET / place
        if check:
            if not path.exists() or path.read_text() != text:
                stale.append(place)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if check:
        for place in stale:
            print(f"not fresh: runekeep/{place}; run `make proto`", file=sys.stderr)
        return 1 if stale else 0
    for place in present - files.keys():
        (TARGET / place).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
