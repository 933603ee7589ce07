"""Adds the files of others in the studio to the SBOM: `make lock` runs it after the packages of the lock.

runekeep/studio/static/vendor/packages.json lists them: for each package of npm its name, version, licence and files.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SBOM = ROOT / "deploy" / "image" / "sbom.cdx.json"
VENDOR = ROOT / "runekeep" / "studio" / "static" / "vendor"


def component(package: dict[str, Any]) -> dict[str, Any]:
    """Returns a package as a component of CycloneDX, with its files and their hashes."""
    purl = f"pkg:npm/{package['name']}@{package['version']}"
    files = [
        {
            "type": "file",
            "bom-ref": f"{purl}#{file}",
            "name": f"runekeep/studio/static/vendor/{file}",
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256((VENDOR / file).read_bytes()).hexdigest()}],
        }
        for file in package["files"]
    ]
    return {
        "bom-ref": purl,
        "components": files,
        "description": "Vendored, unchanged, in the studio",
        "licenses": [{"license": {"id": package["licence"]}}],
        "name": package["name"],
        "purl": purl,
        "type": "library",
        "version": package["version"],
    }


def main() -> None:
    sbom = json.loads(SBOM.read_text(encoding="utf-8"))
    vendored = [component(package) for package in json.loads((VENDOR / "packages.json").read_text(encoding="utf-8"))]
    purls = {one["purl"] for one in vendored}
    sbom["components"] = [one for one in sbom["components"] if one.get("purl") not in purls] + vendored
    dependencies = [one for one in sbom.get("dependencies", []) if one["ref"] not in purls]
    sbom["dependencies"] = [*dependencies, *({"ref": purl} for purl in sorted(purls))]
    SBOM.write_text(json.dumps(sbom, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
