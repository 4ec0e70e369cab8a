"""python -m release.version [NEW]: print the version, or write a new one wherever it stands.

It is that of pyproject.toml. A checkout is installed as it is, so manifests, chart and docs need it as well.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_IN_TEXT = r"(?:trainjob-visibility:|newTag: )({})"
_OF_PROJECT = r'^version = "({})"'
PLACES: dict[str, tuple[str, ...]] = {  # the first is where it is read
    "pyproject.toml": (_OF_PROJECT, r"trainjob-progress==({})"),
    "reporter/pyproject.toml": (_OF_PROJECT,),
    "deploy/base/kustomization.yaml": (_IN_TEXT,),
    "deploy/runtimes/kustomization.yaml": (_IN_TEXT,),
    "deploy/chart/Chart.yaml": (r"^version: ({})", r"^appVersion: ({})"),
    "dashboard/package.json": (r'^  "version": "({})"',),
    "README.md": (_IN_TEXT,),
    "docs/install.md": (_IN_TEXT,),
}
_NUMBER = r"\d+\.\d+\.\d+"


def found(root: Path = ROOT) -> dict[str, set[str]]:
    """What each place says. Each pattern stands in its file."""
    versions: dict[str, set[str]] = {}
    for name, patterns in PLACES.items():
        text = (root / name).read_text()
        for pattern in patterns:
            numbers = re.findall(pattern.format(_NUMBER), text, re.MULTILINE)
            if not numbers:
                raise ValueError(f"{name} has no version where it is expected: {pattern}")
            versions.setdefault(name, set()).update(numbers)
    return versions


def write(new: str, root: Path = ROOT) -> None:
    """Raises ValueError if it is no version."""
    if not re.fullmatch(_NUMBER, new):
        raise ValueError(f"{new} is no version like 1.2.3")
    for name, patterns in PLACES.items():
        path = root / name
        text = path.read_text()
        for pattern in patterns:
            text = re.sub(
                pattern.format(_NUMBER), lambda m: m[0].replace(m[1], new), text, flags=re.MULTILINE
            )
        path.write_text(text)


def main() -> int:
    try:
        if sys.argv[1:]:
            write(sys.argv[1])
        versions = set[str]().union(*found().values())
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if len(versions) > 1:
        print(f"not the same everywhere: {found()}", file=sys.stderr)
        return 1
    print(*versions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
