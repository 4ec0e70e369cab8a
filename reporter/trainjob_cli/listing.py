"""The list of jobs: the server's own Table, with bars where there is a terminal."""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, List, Sequence, Set, Tuple

from trainjob_client.requests import ALL_KINDS, GROUP

from .api import TABLE, Api
from .terminal import BLUE, BOLD, GREEN, RED, YELLOW, Terminal, cells_of, columns, cut, harmless, terminal

_BAR = 12
# What goes first where a terminal is too narrow.
_EXPENDABLE = ("AGE", "KIND", "SEEN", "REASON", "STEP", "LOSS", "ETA")
_LEAST_NAME = 12

Row = Dict[str, str]


def fetch(api: Api) -> Tuple[List[Row], Set[str]]:
    """The rows by upper-case column, and the columns that are only shown with -o wide."""
    found = api.answer(api.list_path(), api.selection(), TABLE).json()
    heads = heads_of(found["columnDefinitions"])
    return [read_row(row, heads) for row in found["rows"]], hidden_of(found["columnDefinitions"])


def heads_of(columns_: Sequence[Dict[str, Any]]) -> List[str]:
    return [each["name"].upper() for each in columns_]


def hidden_of(columns_: Sequence[Dict[str, Any]]) -> Set[str]:
    return {each["name"].upper() for each in columns_ if each["priority"]}


def read_row(row: Dict[str, Any], heads: Sequence[str]) -> Row:
    """One row of a Table."""
    cells = ["" if cell is None else harmless(str(cell)) for cell in row["cells"]]
    cells[0] = cells[0].removeprefix("trainjobs.")  # of all kinds; what is printed may be typed
    return {"NAMESPACE": row["object"]["metadata"].get("namespace", ""), **dict(zip(heads, cells))}


def print_list(api: Api, output: str) -> int:
    """The exit code."""
    if output in ("json", "yaml"):
        print_raw(api, api.list_path(), output)
        return 0
    rows, hidden = fetch(api)
    if output == "name":
        print(*names_of(api, rows), sep="\n", end="\n" if rows else "")
        return 0
    if not rows:
        where = "" if api.flags.get("all_namespaces") else f" in {api.namespace} namespace"
        print(f"No resources found{where}.", file=sys.stderr)
        return 0
    lines = render(rows, hidden, terminal(), api.flags, is_wide=output == "wide")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def names_of(api: Api, rows: Sequence[Row]) -> List[str]:
    """As kubectl names them, with the prefix that lists of all kinds have."""
    plural = api.plural(api.flags.get("kind"))
    found = []
    for row in rows:
        prefix = "trainjobs." if plural == ALL_KINDS and row["KIND"] == "TrainJob" else ""
        found.append(f"{singular(plural)}.{GROUP}/{prefix}{row['NAME']}")
    return found


def print_raw(api: Api, path: str, output: str) -> None:
    """As the server says it: JSON indented as kubectl's, or its own YAML."""
    if output == "yaml":
        sys.stdout.write(api.answer(path, api.selection(), "application/yaml").body.decode())
    else:
        print(json.dumps(api.read(path, api.selection()), indent=4, ensure_ascii=False))


def singular(plural: str) -> str:
    """As kubectl writes names: trainjobprogress.GROUP/NAME."""
    return "trainingjob" if plural == ALL_KINDS else plural.removesuffix("s") + "progress"


def render(
    rows: Sequence[Row], hidden: Set[str], shown: Terminal, flags: Dict[str, Any], *, is_wide: bool
) -> List[str]:
    """The head and a line for each job. What is too wide for a terminal is left out, from the least on."""
    everywhere = bool(flags.get("all_namespaces"))
    heads = [
        head for head in rows[0] if (everywhere or head != "NAMESPACE") and (is_wide or head not in hidden)
    ]
    if not is_wide and shown.width is not None and "REASON" in rows[0]:
        heads.append("REASON")
    bar = _BAR if shown.is_terminal and "PROGRESS" in heads and not is_wide else 0
    limit = shown.width if not is_wide else None
    name_cells = 0 if limit is None else max(max(cells_of(row["NAME"]) for row in rows), 4)

    def width() -> int:
        others = [max(len(head), *(cells_of(row[head]) for row in rows)) for head in heads if head != "NAME"]
        return name_cells + sum(others) + 3 * len(heads) - 3 + (bar + 1 if bar else 0)

    if limit is not None:
        heads = [head for head in heads if any(row[head] for row in rows)]
        bar = bar if "PROGRESS" in heads else 0
        for step in ("REASON", "AGE", "SEEN", "bar", *_EXPENDABLE):
            if width() <= limit:
                break
            if step == "bar":
                bar = 0
            elif step in heads:
                heads.remove(step)
        name_cells = max(_LEAST_NAME, min(name_cells, name_cells - max(0, width() - limit)))
    table = [heads, *([row[head] for head in heads] for row in rows)]
    for cells in table[1:] if limit is not None else ():
        name = heads.index("NAME")
        cells[name] = cut(cells[name], name_cells, "…" if shown.has_blocks else "~")
        if bar:
            index = heads.index("PROGRESS")
            cells[index] = cells[index].rjust(4) + " " + "\0" * bar if cells[index] else ""
    lines = columns(table)
    if bar or shown.has_colour:
        painted = [_paint(line, row, shown, bar) for line, row in zip(lines[1:], rows)]
        lines = [shown.paint(lines[0], BOLD), *painted]
    return lines[1:] if flags.get("no_headers") else lines


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
