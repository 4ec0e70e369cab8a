"""What the two distributions hold and require, and what the server says where a requirement is missing."""

from __future__ import annotations

import email.message
import email.policy
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.test_reporter_pythons import find_python

ROOT = Path(__file__).parents[2]
REPORTER = ROOT / "reporter"
PACKAGES = ("trainjob_progress", "trainjob_client", "trainjob_cli")

BUILD = """
import setuptools.build_meta, sys
setuptools.build_meta.build_wheel(sys.argv[1])
"""

HIDE_THE_REPORTER = """
import sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "trainjob_progress":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Finder)
"""


class Wheel:
    """What pip would install, and the metadata that it would read first."""

    def __init__(self, path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            self.info = {
                name.partition("/")[2]: archive.read(name)
                for name in names
                if name.partition("/")[0].endswith(".dist-info")
            }
            self.files = {name for name in names if not name.partition("/")[0].endswith(".dist-info")}
        policy = email.policy.default
        self.metadata: email.message.Message = email.message_from_bytes(self.info["METADATA"], policy=policy)

    @property
    def requirements(self) -> list[str]:
        """Those of every installation: without those of the extras."""
        every = self.metadata.get_all("Requires-Dist", [])
        return sorted(each for each in every if "extra ==" not in each)


def project(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
    return found


def files_of(package: Path) -> set[str]:
    """Everything in the package's directory that git would keep."""
    return {
        str(path.relative_to(package.parent))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The checkout's three packages, in a place where a build may leave what it leaves."""
    directory = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    for name in ("visibility_api", "localcluster", "reporter"):
        shutil.copytree(ROOT / name, directory / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, directory / name)
    yield directory
    shutil.rmtree(directory)


def build(directory: Path) -> Wheel:
    """As the image does it: with the setuptools that is installed here, without an environment of its own."""
    dist = directory / "dist"
    command = [sys.executable, "-c", BUILD, str(dist)]
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    (path,) = dist.glob("*.whl")
    return Wheel(path)


@pytest.fixture(scope="module")
def reporter(copy: Path) -> Wheel:
    return build(copy / "reporter")


@pytest.fixture(scope="module")
def server(copy: Path) -> Wheel:
    return build(copy)


def test_the_reporters_wheel_has_client_and_plugin_as_well_and_requires_nothing(reporter: Wheel) -> None:
    assert reporter.metadata["Name"] == "trainjob-progress"
    assert reporter.metadata["Requires-Python"] == ">=3.9"
    assert reporter.files == set().union(*(files_of(REPORTER / each) for each in PACKAGES))
    assert {f"{each}/py.typed" for each in PACKAGES} <= reporter.files
    assert reporter.requirements == []
    assert b"kubectl-trainjob_progress = trainjob_cli.main:script" in reporter.info["entry_points.txt"]


def test_the_servers_wheel_is_the_server_with_its_data_and_no_other_package(server: Wheel) -> None:
    assert server.metadata["Name"] == "trainjob-visibility"
    published = {f"visibility_api/{name}" for name in files_of(ROOT / "openapi")}  # a link leads there
    assert server.files == files_of(ROOT / "visibility_api") | published
    assert "visibility_api/py.typed" in server.files
    assert any(name.endswith(".json") for name in server.files)
    assert server.info["entry_points.txt"].split(b"\n")[1] == b"visibility-api = visibility_api.__main__:main"


def test_the_server_requires_the_reporter_of_its_own_version(server: Wheel, reporter: Wheel) -> None:
    assert server.metadata["Version"] == reporter.metadata["Version"]
    assert f"trainjob-progress=={reporter.metadata['Version']}" in server.requirements


def test_both_wheels_have_the_license(server: Wheel, reporter: Wheel) -> None:
    text = (ROOT / "LICENSE").read_bytes()
    assert server.info["licenses/LICENSE"] == reporter.info["licenses/LICENSE"] == text


def test_every_requirement_of_the_server_is_in_the_images_lock() -> None:
    lock = (ROOT / "requirements/server.txt").read_text()
    locked = {line.partition("==")[0] for line in lock.splitlines() if line[:1].isalnum()}
    required = {
        each.partition(">=")[0].partition("==")[0].lower().replace("_", "-")
        for each in project(ROOT)["dependencies"]
    }
    assert required - locked == {"trainjob-progress"}  # built from the checkout, never looked for in an index


def run_server(python: Path | str, *path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), "-m", "visibility_api", "serve"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, path))},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )


def check_says_what_to_install(result: subprocess.CompletedProcess[str], why: str) -> None:
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"visibility-api: {why}; ")
    assert "pip install trainjob-visibility " in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment in which nothing is installed."""
    directory = tmp_path_factory.mktemp("bare")
    venv.create(directory, with_pip=False)
    return directory / "bin" / "python"


def test_without_its_dependencies_the_server_says_what_to_install(bare_python: Path) -> None:
    result = run_server(bare_python, ROOT, REPORTER)
    missing = result.stderr.partition("'")[2].partition("'")[0]
    required = " ".join(project(ROOT)["dependencies"]).lower()
    assert missing in required.replace("-", "_")
    check_says_what_to_install(result, f"the module {missing!r} is not installed")


def test_without_the_reporter_the_server_says_what_to_install(tmp_path: Path) -> None:
    """As after `pip install --no-deps`: all the rest is there."""
    (tmp_path / "sitecustomize.py").write_text(HIDE_THE_REPORTER)
    result = run_server(sys.executable, tmp_path, ROOT)
    check_says_what_to_install(result, "the module 'trainjob_progress' is not installed")


@pytest.mark.parametrize("version", ["3.9", "3.10"])
def test_on_an_older_python_the_server_says_which_it_needs(version: str) -> None:
    result = run_server(find_python(version), ROOT, REPORTER)
    check_says_what_to_install(result, f"Python 3.11 or newer is needed, this is Python {version}")


def test_a_module_of_our_own_that_is_missing_is_a_fault_and_not_a_matter_of_installing(
    bare_python: Path, tmp_path: Path
) -> None:
    package = tmp_path / "visibility_api"
    package.mkdir()
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(ROOT / "visibility_api" / name, package / name)
    result = run_server(bare_python, tmp_path)
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "No module named 'visibility_api.cli'" in result.stderr


def test_with_another_uvicorn_than_the_tested_ones_the_server_says_what_to_install(tmp_path: Path) -> None:
    """Of that one nothing but its version can be imported."""
    package = tmp_path / "uvicorn"
    package.mkdir()
    (package / "__init__.py").write_text('__version__ = "0.99.0"\n')
    ended = subprocess.run(
        [sys.executable, "-m", "visibility_api", "serve"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("visibility-api serve: uvicorn 0.99.0 is installed")
    assert "pip install" in ended.stderr
    assert "Traceback" not in ended.stderr
