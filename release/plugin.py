"""The plugin for kubectl as krew installs it: an archive with all that it imports, and its manifest."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from importlib import metadata
from pathlib import Path

import yaml

NAME = "trainjob-progress"
BINARY = "kubectl-trainjob_progress"  # krew's naming rules: dashes of the name are underscores
# What `trainjob-progress[cli]` needs, as the lock has it. All is Python: what is compiled has a substitute.
_DEPENDENCIES = (
    "anyio",
    "certifi",
    "click",
    "h11",
    "httpcore",
    "httpx",
    "idna",
    "pyyaml",
    "typing_extensions",
)
_PACKAGES = ("trainjob_cli", "trainjob_client", "trainjob_progress")
# To sh the second line starts Python, without looking for what else is installed, which takes 5 ms; to Python
# it is a text.
_SCRIPT = b"""#!/bin/sh
'''exec' python3 -SEs -- "$0" "$@" # '''
import sys
from pathlib import Path

if sys.version_info < (3, 11):
    sys.exit("error: kubectl trainjob-progress needs Python 3.11 or newer as python3")
sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from trainjob_cli.main import script

script()
"""


def pack_plugin(root: Path, out: Path, releases: str) -> tuple[Path, Path]:
    """The archive and krew's manifest. `releases`: the address below which files of the release will be."""
    version = metadata.version(NAME)
    files = {f"{BINARY}": _SCRIPT, "LICENSE": (root / "LICENSE").read_bytes()}
    for package in _PACKAGES:
        for path in (root / "reporter" / package).rglob("*.py"):
            files[f"lib/{path.relative_to(root / 'reporter')}"] = path.read_bytes()
    for name in _DEPENDENCIES:
        for file in metadata.files(name) or ():
            is_code = file.suffix in (".py", ".pem") and ".." not in file.parts
            if is_code or (file.parts[0].endswith(".dist-info") and "licen" in str(file).lower()):
                files[f"lib/{file}"] = file.read_binary()
    archive = out / f"{BINARY}-{version}.tar.gz"
    archive.write_bytes(_tar(files))
    manifest = out / f"{NAME}.krew.yaml"
    manifest.write_text(yaml.safe_dump(_manifest(version, archive, releases), sort_keys=False, width=100))
    return archive, manifest


def _tar(files: dict[str, bytes]) -> bytes:
    """The same bytes for the same files."""
    raw = io.BytesIO()
    moment = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    with (
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), moment
            entry.mode = 0o755 if name == BINARY else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return raw.getvalue()


def _manifest(version: str, archive: Path, releases: str) -> dict[str, object]:
    """Reference: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/"""
    platform = {
        "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]},
        "uri": f"{releases}/v{version}/{archive.name}",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "bin": BINARY,
    }
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": NAME},
        "spec": {
            "version": f"v{version}",
            "homepage": releases.removesuffix("/releases/download"),
            "shortDescription": "Progress of training jobs",
            "description": "Lists training jobs with their progress, shows one with its loss curve, says\n"
            "why it failed, and waits for a share, a metric or a condition.\n",
            "caveats": "It needs Python 3.11 or newer as python3, and trainjob-visibility in the cluster.\n",
            "platforms": [platform],
        },
    }
