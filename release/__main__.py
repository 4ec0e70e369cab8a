"""python -m release --image IMAGE [--out dist]"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from .notes import release_notes
from .parts import build_packages, describe_dependencies, pack_chart, render_manifests, write_checksums
from .plugin import pack_plugin

ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="release", description="Build everything that a release consists of."
    )
    parser.add_argument(
        "--image",
        required=True,
        help="the server's image, with a tag or a digest, such as ghcr.io/me/trainjob-visibility@sha256:…",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("dist"),
        metavar="DIR",
        help="new or empty; default: dist, which is made anew",
    )
    repository = os.environ.get("GITHUB_REPOSITORY", "OWNER/trainjob-visibility")
    parser.add_argument(
        "--releases",
        default=f"https://github.com/{repository}/releases/download",
        metavar="URL",
        help="below which the files of releases are; default: GitHub's of $GITHUB_REPOSITORY",
    )
    given = parser.parse_args()
    out: Path = given.out.resolve()
    if out == ROOT / "dist":
        shutil.rmtree(out, ignore_errors=True)
    elif out.exists() and any(out.iterdir()):
        parser.error(f"--out {given.out}: there is something in it; give a directory that is new or empty")
    out.mkdir(parents=True, exist_ok=True)
    # So that a wheel of the same commit is the same file.
    commit_time = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    os.environ.setdefault("SOURCE_DATE_EPOCH", subprocess.check_output(commit_time, text=True).strip())
    build_packages(ROOT, out)
    render_manifests(ROOT, given.image, out)
    pack_chart(ROOT, given.image, out)
    pack_plugin(ROOT, out, given.releases)
    describe_dependencies(ROOT / "requirements/server.txt", out / "sbom.cdx.json")
    (out / "RELEASE_NOTES.md").write_text(release_notes((ROOT / "CHANGELOG.md").read_text()))
    write_checksums(out)
    for path in sorted(out.iterdir()):
        print(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
