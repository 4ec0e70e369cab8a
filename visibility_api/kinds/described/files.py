"""The files of `--kinds`: one kind a YAML document, read again when they change.

A fault costs the kind that has it. The others are used, and of that kind what was last read without a fault.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visibility_api.models.served import Resource

from .kind import DescribedKind
from .model import read_description

MAX_FILES, MAX_FILE_BYTES, MAX_KINDS = 16, 64 * 1024, 16
SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What the files say."""

    kinds: tuple[DescribedKind, ...] = ()
    faults: tuple[str, ...] = ()  # one line each: file, kind, field, what is wrong and what to do
    sources: Mapping[tuple[str, str], tuple[object, DescribedKind]] = field(default_factory=dict)


def read_kinds(path: Path, taken: Collection[Resource], before: Described) -> Described:
    """All kinds that the file, or the files of the directory, describe. Never raises.

    `taken`: the resources that are served in any case. `before`: what was read last.
    """
    reading = _Reading(taken, before)
    try:
        files = sorted(_files(path))
    except OSError as error:
        reading.keep_all(f"{path}: cannot be read: {error.strerror}; what was read before stays")
        files = []
    for file in files[:MAX_FILES]:
        reading.read(file)
    if len(files) > MAX_FILES:
        reading.faults.append(f"{path}: has {len(files)} files; only the first {MAX_FILES} are read")
    return reading.result()


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for each in path.iterdir():
        # A ConfigMap's own directories begin with two dots.
        if each.suffix in SUFFIXES and not each.name.startswith(".") and each.is_file():
            yield each


class _Reading:
    def __init__(self, taken: Collection[Resource], before: Described) -> None:
        self.faults: list[str] = []
        self._before = before.sources
        self._found: dict[tuple[str, str], tuple[object, DescribedKind]] = {}
        self._names = {name: "a built-in kind" for each in taken for name in _names(each)}

    def keep_all(self, fault: str) -> None:
        self.faults.append(fault)
        self._found |= self._before

    def result(self) -> Described:
        kinds = tuple(kind for _, kind in self._found.values())
        return Described(kinds=kinds, faults=tuple(self.faults), sources=self._found)

    def read(self, file: Path) -> None:
        try:
            documents = _documents(file)
        except ValueError as error:
            self.faults.append(f"{file.name}: {error}")
            for key in [each for each in self._before if each[0] == file.name]:
                self._keep(key)
            return
        for number, document in enumerate(documents, start=1):
            name = document.get("kind") if isinstance(document, dict) else None
            key = file.name, (name if isinstance(name, str) else f"document {number}")[:64]
            try:
                self._add(key, document, self._described(key, document))
            except ValueError as error:
                is_kept = self._keep(key)
                stays = "; what was read before stays" if is_kept else ""
                self.faults.append(f"{file.name}: {key[1]}: {error}{stays}")

    def _keep(self, key: tuple[str, str]) -> bool:
        """Use what was last read without a fault, if there is such, and its names are free."""
        if key not in self._before or key in self._found:
            return False
        with suppress(ValueError):
            self._add(key, *self._before[key])
        return key in self._found

    def _described(self, key: tuple[str, str], document: object) -> DescribedKind:
        before = self._before.get(key)
        if before is not None and before[0] == document:
            return before[1]  # so that nothing begins anew for it
        return DescribedKind(read_description(document))

    def _add(self, key: tuple[str, str], document: object, kind: DescribedKind) -> None:
        """Raises ValueError for a name that something else has, or one kind too many."""
        for name in _names(kind.served):
            if name in self._names:
                raise ValueError(
                    f'"{name}" is the name of {self._names[name]}; give another one'
                    " as shortName, servedResource or servedKind"
                )
        if len(self._found) >= MAX_KINDS:
            raise ValueError(f"{MAX_KINDS} kinds are described already; no more are served")
        self._names |= dict.fromkeys(_names(kind.served), f"{key[1]} in {key[0]}")
        self._found[key] = document, kind


def _names(resource: Resource) -> tuple[str, ...]:
    """All by which kubectl may know a resource."""
    return (resource.plural, resource.kind, resource.singular, *resource.short_names)


def _documents(file: Path) -> list[Any]:
    """The YAML documents of a file. Raises ValueError."""
    import yaml  # most servers describe no kinds

    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"has more than {MAX_FILE_BYTES} bytes; split it")
    try:
        text = content.decode()
        if any(isinstance(token, (yaml.AnchorToken, yaml.AliasToken)) for token in yaml.scan(text)):
            raise ValueError("has anchors or aliases; write their values out")
        return [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise ValueError(f"is not valid YAML{where}") from None
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
