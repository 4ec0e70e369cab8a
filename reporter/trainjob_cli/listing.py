"""The list of jobs: the server's own Table, with bars where there is a terminal."""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from trainjob_client.requests import ALL_KINDS, GROUP, RECORDS

from .api import TABLE, Api
from .terminal import BLUE, BOLD, GREEN, RED, YELLOW, Terminal, cells_of, columns, cut, harmless, terminal

FIRST = 100  # jobs of the first page, more than a terminal shows at once
_BAR = 12
# What goes first where a terminal is too narrow; a bar is first half as long.
_EXPENDABLE = ("REASON", "AGE", "SEEN", "bar", "KIND", "bar", "STEP", "LOSS", "ETA")
_LEAST_NAME = 12

Row = Dict[str, str]


def pages(api: Api, *more: Tuple[str, str]) -> Iterator[Tuple[List[Row], Set[str], bool]]:
    """The rows by upper-case column, which columns -o wide alone shows, and whether rows follow.

    The first page is small, so that the first line comes soon.
    """
    page = [("limit", str(FIRST))]
    while page:
        found = api.answer(api.list_path(), [*api.selection(), *more, *page], TABLE).json()
        token = found["metadata"].get("continue")
        page = [("continue", token)] if token else []
        heads = heads_of(found["columnDefinitions"])
        rows = [read_row(row, heads) for row in found["rows"]]
        yield rows, hidden_of(found["columnDefinitions"]), bool(token)


def heads_of(columns_: Sequence[Dict[str, Any]]) -> List[str]:
    return [each["name"].upper() for each in columns_]


def hidden_of(columns_: Sequence[Dict[str, Any]]) -> Set[str]:
    return {each["name"].upper() for each in columns_ if each["priority"]}


def read_row(row: Dict[str, Any], heads: Sequence[str]) -> Row:
    """One row of a Table."""
    cells = ["" if cell is None else harmless(str(cell)) for cell in row["cells"]]
    cells[0] = cells[0].removeprefix("trainjobs.")  # of all kinds; what is printed may be typed
    return {"NAMESPACE": row["object"]["metadata"].get("namespace", ""), **dict(zip(heads, cells))}


def print_list(api: Api, output: str, *more: Tuple[str, str]) -> int:
    """The exit code. `more`: parameters of the list."""
    if output in ("json", "yaml"):
        print_raw(api, api.list_path(), output, *more)
        return 0
    lines: Optional[Lines] = None
    for rows, hidden, has_more in pages(api, *more):
        if output == "name":
            found = names_of(api, rows)
        elif rows:
            lines = lines or Lines(terminal(), api.flags, hidden, is_wide=output == "wide")
            found = lines.of(rows, has_more=has_more)
        else:
            found = []
        print(*found, sep="\n", end="\n" if found else "", flush=True)
    if lines is None and output != "name":
        where = "" if api.flags.get("all_namespaces") else f" in {api.namespace} namespace"
        print(f"No resources found{where}.", file=sys.stderr)
    return 0


def names_of(api: Api, rows: Sequence[Row]) -> List[str]:
    """As kubectl names them, with the prefix that lists of all kinds have."""
    plural = api.plural(api.flags.get("kind"))
    found = []
    for row in rows:
        prefix = "trainjobs." if plural == ALL_KINDS and row["KIND"] == "TrainJob" else ""
        found.append(f"{singular(plural)}.{GROUP}/{prefix}{row['NAME']}")
    return found


def print_raw(api: Api, path: str, output: str, *more: Tuple[str, str]) -> None:
    """As the server says it: JSON indented as kubectl's, or its own YAML."""
    if output == "yaml":
        sys.stdout.write(api.answer(path, [*api.selection(), *more], "application/yaml").body.decode())
    else:
        print(json.dumps(api.read(path, [*api.selection(), *more]), indent=4, ensure_ascii=False))


def singular(plural: str) -> str:
    """As kubectl writes names: trainjobprogress.GROUP/NAME."""
    found = plural.removesuffix("s")
    return found if plural in (ALL_KINDS, RECORDS) else f"{found}progress"


class Lines:
    """The head and a line for each job, in columns that stay as they are when more jobs come.

    What is too wide for a terminal is left out, from the least on.
    """

    def __init__(
        self,
        shown: Terminal,
        flags: Dict[str, Any],
        hidden: Set[str],
        *,
        is_wide: bool,
        expendable: Sequence[str] = _EXPENDABLE,
    ) -> None:
        self._shown = shown
        self._flags = flags
        self._hidden = hidden
        self._is_wide = is_wide
        self._expendable = expendable
        self._limit = shown.width if not is_wide else None
        self._heads: List[str] = []
        self._widths: List[int] = []
        self._bar = self._name_cells = 0

    def of(self, rows: Sequence[Row], *, has_more: bool = False) -> List[str]:
        """The head is before the first."""
        shown, is_first = self._shown, not self._heads
        if is_first:
            self._choose(rows, has_more)
        heads = self._heads
        table = [heads, *([row[head] for head in heads] for row in rows)]
        for cells in table[1:] if self._limit is not None else ():
            name = heads.index("NAME")
            cells[name] = cut(cells[name], self._name_cells, "…" if shown.has_blocks else "~")
            if self._bar:
                index = heads.index("PROGRESS")
                cells[index] = cells[index].rjust(4) + " " + "\0" * self._bar if cells[index] else ""
        lines = columns(table, self._widths)
        if self._bar or shown.has_colour:
            painted = [_paint(line, row, shown, self._bar) for line, row in zip(lines[1:], rows)]
            lines = [shown.paint(lines[0], BOLD), *painted]
        return lines if is_first and not self._flags.get("no_headers") else lines[1:]

    def _choose(self, rows: Sequence[Row], has_more: bool) -> None:
        everywhere, limit = bool(self._flags.get("all_namespaces")), self._limit
        heads = [
            head
            for head in rows[0]
            if (everywhere or head != "NAMESPACE") and (self._is_wide or head not in self._hidden)
        ]
        if not self._is_wide and self._shown.width is not None and "REASON" in rows[0]:
            heads.append("REASON")
        bar = _BAR if self._shown.is_terminal and "PROGRESS" in heads and not self._is_wide else 0
        name_cells = 0 if limit is None else max(max(cells_of(row["NAME"]) for row in rows), 4)

        def width() -> int:
            others = [
                max(len(head), *(cells_of(row[head]) for row in rows)) for head in heads if head != "NAME"
            ]
            more = max(0, len("100% ") + bar - len("PROGRESS")) if bar else 0
            return name_cells + sum(others) + 3 * len(heads) - 3 + more

        if limit is not None:
            empty = [head for head in heads if not any(row[head] for row in rows)]
            if not has_more:  # else later rows may have them
                heads = [head for head in heads if head not in empty]
            bar = bar if "PROGRESS" in heads else 0
            for step in (*empty, *self._expendable):
                if width() <= limit:
                    break
                if step == "bar":
                    bar = bar // 2 if bar == _BAR else 0
                elif step in heads:
                    heads.remove(step)
            bar = bar if "PROGRESS" in heads else 0
            name_cells = max(_LEAST_NAME, min(name_cells, name_cells - max(0, width() - limit)))
        self._heads, self._bar, self._name_cells = heads, bar, name_cells


def _paint(line: str, row: Row, shown: Terminal, bar: int) -> str:
    """The bar in the place that is kept for it, and the phase in its colour."""
    phase = row["PHASE"]
    is_bad = phase == "Running" and bool(row.get("REASON"))
    colour = RED if phase == "Failed" else YELLOW if is_bad else GREEN if phase == "Succeeded" else BLUE
    if bar:
        percent = row["PROGRESS"].rstrip("%")
        share = float(percent) / 100 if percent else 0.0
        line = line.replace("\0" * bar, shown.bar(share, bar, colour))
    return (
        line.replace(phase, shown.paint_phase(phase), 1) if shown.has_colour and f" {phase}" in line else line
    )
