"""The files of a release, each made by the tool that is usual for it."""

from __future__ import annotations

import glob
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

# By file: the components beside deploy/base. The first is what docs/install.md recommends.
MANIFESTS: Mapping[str, Sequence[str]] = {
    "install.yaml": ("exec-by-namespace", "source-push"),
    "install-cert-manager.yaml": ("exec-by-namespace", "source-push", "cert-manager"),
    "install-status-only.yaml": (),
}
_BUILD = """
import setuptools.build_meta as backend, sys
_, out = sys.argv  # which setuptools changes
backend.build_sdist(out)
backend.build_wheel(out)
"""


def build_packages(root: Path, out: Path) -> None:
    """A wheel and an sdist of the server and of the reporter, by the locked setuptools."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "checkout"  # setuptools leaves its work where it builds
        listed = subprocess.check_output(["git", "-C", str(root), "ls-files", "-z"], text=True)
        for name in filter(None, listed.split("\0")):
            if (root / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy / name)
                (copy / name).chmod(0o755 if os.access(copy / name, os.X_OK) else 0o644)  # whatever the umask
        for each in (copy, copy / "reporter"):
            command = [sys.executable, "-c", _BUILD, str(out)]
            subprocess.run(
                command,
                cwd=each,
                check=True,
                umask=0o022,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
    for sdist in out.glob("trainjob_*.tar.gz"):
        _date(sdist)


def _date(sdist: Path) -> None:
    """As of the commit, and nobody's: setuptools writes when and by whom it was built."""
    packed = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for entry in sorted(old.getmembers(), key=lambda each: each.name):
            data = old.extractfile(entry)
            entry.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.pax_headers = {}
            new.addfile(entry, data)
    sdist.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def split_image(image: str) -> tuple[str, str, str]:
    """Repository, tag and digest; one of these two is empty. Raises ValueError where both are."""
    name, at, digest = image.partition("@")
    name, _, tag = (name, "", "") if at else image.rpartition(":")
    if not name or not (digest or tag):
        raise ValueError(f"{image}: give an image with a tag or a digest")
    return name, tag, digest


def render_manifests(root: Path, image: str, out: Path) -> None:
    """One file for each choice in MANIFESTS, for `kubectl apply -f`, with this image."""
    name, tag, digest = split_image(image)
    version = {"digest": digest} if digest else {"newTag": tag}
    chosen = {"name": "trainjob-visibility", "newName": name, **version}
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch)
        for part in ("apiservice", "deploy"):
            shutil.copytree(root / part, copy / part)
        for file, components in MANIFESTS.items():
            kustomization = {
                "resources": ["../base"],
                "components": [f"../components/{component}" for component in components],
                "images": [chosen],
            }
            directory = copy / "deploy" / Path(file).stem
            directory.mkdir()
            (directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
            command = ["kubectl", "kustomize", str(directory)]
            (out / file).write_bytes(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def pack_chart(root: Path, image: str, out: Path) -> Path:
    """deploy/chart as `helm package` packs it, with this image, and the files that its links lead to."""
    chart = root / "deploy/chart"
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    values = (chart / "values.yaml").read_text()
    for key, value in zip(("repository", "tag", "digest"), split_image(image), strict=True):
        values, found = re.subn(rf'(?m)^(  {key}: )("[^"]*"|\S+)', rf"\g<1>{json.dumps(value)}", values)
        if found != 1:
            raise ValueError(f"values.yaml has {found} lines of image.{key}")
    path = out / f"{about['name']}-{about['version']}.tgz"
    files = [each for each in glob.glob("**", root_dir=chart, recursive=True) if (chart / each).is_file()]
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name in sorted(files, key=lambda each: (each != "Chart.yaml", each)):
            data = values.encode() if name == "values.yaml" else (chart / name).read_bytes()
            entry = tarfile.TarInfo(f"{about['name']}/{name}")
            entry.size, entry.mode = len(data), 0o644
            entry.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
            archive.addfile(entry, io.BytesIO(data))
    return path


def describe_dependencies(lock: Path, to: Path) -> None:
    """The software bill of materials of the server's locked dependencies (CycloneDX, JSON)."""
    command = [
        "cyclonedx-py",
        "requirements",
        str(lock),
        "--output-reproducible",
        "--of",
        "JSON",
        "-o",
        str(to),
    ]
    subprocess.run(command, check=True, stderr=subprocess.PIPE)


def write_checksums(out: Path) -> None:
    """SHA256SUMS, in the form that `sha256sum --check` reads."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(out.iterdir())
    ]
    (out / "SHA256SUMS").write_text("".join(lines))
