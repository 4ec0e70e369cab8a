"""What `make release` puts into dist/, but for the list of dependencies, which another program writes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from release.notes import release_notes
from release.parts import MANIFESTS, build_packages, pack_chart, render_manifests, write_checksums
from release.plugin import pack_plugin
from release.version import PLACES, found, write
from tests import charts

ROOT = Path(__file__).parents[2]
DIGEST = "sha256:" + "a" * 64


def git_is_here() -> bool:
    return (
        subprocess.run(["git", "-C", str(ROOT), "rev-parse"], capture_output=True, check=False).returncode
        == 0
    )


@pytest.mark.parametrize("image", ["registry.example/a:1.2.3", f"localhost:5000/a@{DIGEST}"])
def test_each_manifest_is_complete_and_names_the_image(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    render_manifests(ROOT, image, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(MANIFESTS)
    for path in tmp_path.iterdir():
        objects = list(yaml.safe_load_all(path.read_text()))
        kinds = {each["kind"] for each in objects}
        assert {"APIService", "Deployment", "Service", "ClusterRoleBinding"} <= kinds
        (deployment,) = (each for each in objects if each["kind"] == "Deployment")
        assert [c["image"] for c in deployment["spec"]["template"]["spec"]["containers"]] == [image]
        secrets = [each for each in objects if each["kind"] == "Secret"]
        assert not any({"data", "stringData"} & each.keys() for each in secrets)


@pytest.mark.parametrize("image", ["", "registry.example/a", "a@", ":1"])
def test_an_image_without_a_version_is_refused(image: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a tag or a digest"):
        render_manifests(ROOT, image, tmp_path)


@pytest.mark.parametrize("image", ["registry.example/a:1.2.3", f"localhost:5000/a@{DIGEST}"])
def test_the_chart_has_the_image_and_every_file_and_is_the_same_each_time(image: str, tmp_path: Path) -> None:
    made = pack_chart(ROOT, image, tmp_path)
    with tarfile.open(made) as archive:
        assert archive.getnames()[0] == "trainjob-visibility/Chart.yaml"
        assert {each.type for each in archive.getmembers()} == {tarfile.REGTYPE}
        values = archive.extractfile("trainjob-visibility/values.yaml")
        assert values is not None
        given = yaml.safe_load(values)["image"]
        assert archive.getmember("trainjob-visibility/manifests/apiservice/rbac-server.yaml").size > 1000
    assert image in (f"{given['repository']}:{given['tag']}", f"{given['repository']}@{given['digest']}")
    first = made.read_bytes()
    assert pack_chart(ROOT, image, tmp_path).read_bytes() == first


def test_krews_archive_has_all_that_the_plugin_imports(tmp_path: Path) -> None:
    archive, manifest = pack_plugin(ROOT, tmp_path, "https://example.com/releases/download")
    first = archive.read_bytes()
    assert pack_plugin(ROOT, tmp_path, "https://example.com/releases/download")[0].read_bytes() == first
    spec = yaml.safe_load(manifest.read_text())["spec"]
    (platform,) = spec["platforms"]
    assert platform["sha256"] == hashlib.sha256(first).hexdigest()
    assert platform["uri"] == f"https://example.com/releases/download/{spec['version']}/{archive.name}"
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4
        packed.extractall(tmp_path / "store")
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / platform["bin"]  # as krew installs it
    link.symlink_to(tmp_path / "store" / platform["bin"])
    argv = [
        sys.executable,
        "-I",
        "-S",
        str(link),
        "--kubeconfig",
        str(tmp_path / "none"),
    ]  # nothing beside it
    ran = subprocess.run(argv, capture_output=True, text=True, check=False, env={})
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "cannot be read: No such file or directory" in ran.stderr
    assert os.access(link, os.X_OK)
    (tmp_path / "signal.py").write_text("raise SystemExit('of the directory')")
    words = ["run", "--", sys.executable, "-c", "import os; print(os.environ.get('PYTHONPATH'))"]
    argv = [sys._base_executable, "-I", "-S", str(link), *words]  # it starts one with site-packages
    env = {"TMPDIR": str(tmp_path)}
    ran = subprocess.run(argv, capture_output=True, text=True, check=False, env=env, cwd=tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "None\n", "")


def test_helm_renders_the_packed_chart_as_that_of_the_checkout(tmp_path: Path) -> None:
    image = {"repository": "r.example/a", "tag": "1.2.3"}
    packed = pack_chart(ROOT, "r.example/a:1.2.3", tmp_path)
    rendered = charts.template(tmp_path, {}, chart=packed)
    assert rendered == charts.template(tmp_path, {"image": image})
    assert "image: r.example/a:1.2.3" in rendered


def test_packages_of_one_commit_are_the_same_for_everybody_and_have_no_scraps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not git_is_here():
        pytest.skip("no git checkout")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    made = []
    for name, umask in (("one", 0o022), ("other", 0o077)):
        clone = tmp_path / f"{name}-clone"
        before = os.umask(umask)
        try:
            subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{ROOT}", str(clone)], check=True)
            (tmp_path / name).mkdir()
            build_packages(clone, tmp_path / name)
        finally:
            os.umask(before)
        packages = sorted((tmp_path / name).iterdir())
        made.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in packages})
    assert made[0] == made[1]
    names = ["trainjob_progress", "trainjob_visibility"]
    assert [name.split("-")[0] for name in made[0]] == [names[0], names[0], names[1], names[1]]
    for path in (tmp_path / "one").glob("*.whl"):
        with zipfile.ZipFile(path) as archive:
            assert not [name for name in archive.namelist() if "__pycache__" in name or "tests/" in name]


def test_the_version_is_the_same_everywhere_and_one_command_changes_it(tmp_path: Path) -> None:
    assert len(set[str]().union(*found().values())) == 1
    for name in PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    write("7.8.9", tmp_path)
    assert found(tmp_path) == {name: {"7.8.9"} for name in PLACES}
    (old,) = found()["pyproject.toml"]
    assert [name for name in PLACES if f":{old}" in (tmp_path / name).read_text()] == []
    with pytest.raises(ValueError, match="no version"):
        write("v1", tmp_path)


def test_checksums_are_those_that_sha256sum_reads(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a")
    (tmp_path / "b.whl").write_text("b")
    write_checksums(tmp_path)
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode == 0


def test_the_notes_are_the_newest_section_of_the_changelog() -> None:
    text = "# Changelog\n\n## [1.1.0] - 2026-01-01\n\n- New.\n\n## [1.0.0]\n\n- Old.\n"
    assert release_notes(text) == "- New.\n"
    assert release_notes((ROOT / "CHANGELOG.md").read_text())
    with pytest.raises(ValueError, match="no section"):
        release_notes("# Changelog\n")
