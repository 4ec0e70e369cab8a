"""Section T: what kubectl prints without knowing the kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.e2e.api import Object
from tests.e2e.conformance.fronts import Front, refusal
from tests.e2e.conformance.team import Team, names, revision
from tests.e2e.scripts import REPORTING

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
KUBECTL = f"{_TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
_TYPES = {"string", "integer", "number", "boolean", "date", "array"}


def _column(table: Object, name: str) -> list[Any]:
    """The cells of one column."""
    (at,) = (at for at, column in enumerate(table["columnDefinitions"]) if column["name"] == name)
    return [row["cells"][at] for row in table["rows"]]


def _first_cells(table: Object) -> list[Any]:
    return [row["cells"][0] for row in table["rows"]]


def test_T1_kubectls_accept_header_gets_a_table(front: Front, crowd: Team) -> None:
    for path in ("", "/a"):
        answer = front.alice.send(crowd.path + path, accept=KUBECTL)
        assert answer.headers["content-type"] == "application/json"
        table = answer.json()
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        assert table.keys() == {"kind", "apiVersion", "metadata", "columnDefinitions", "rows"}


def test_T1_the_older_form_and_yaml_are_served_too(front: Front, crowd: Team) -> None:
    old = front.alice.get(crowd.path, accept="application/json;as=Table;v=v1beta1;g=meta.k8s.io")
    assert (old["apiVersion"], old["rows"][0]["object"]["apiVersion"]) == ("meta.k8s.io/v1beta1",) * 2
    answer = front.alice.send(crowd.path, accept="application/yaml;as=Table;v=v1;g=meta.k8s.io")
    assert yaml.safe_load(answer.text)["kind"] == "Table"


def test_T2_T3_columns_are_whole_and_always_the_same(front: Front, crowd: Team, team: Team) -> None:
    columns = front.alice.get(crowd.path, accept=KUBECTL)["columnDefinitions"]
    for column in columns:
        assert column.keys() == {"name", "type", "format", "description", "priority"}
        assert column["type"] in _TYPES
        assert column["description"]
    assert (columns[0]["name"], columns[0]["type"], columns[0]["format"]) == ("Name", "string", "name")
    assert columns[0]["priority"] == 0
    assert {column["priority"] for column in columns} == {0, 1}
    for path in (f"{crowd.path}/a", team.path):
        assert front.alice.get(path, accept=KUBECTL)["columnDefinitions"] == columns


def test_T4_every_row_has_a_cell_for_every_column(front: Front, crowd: Team) -> None:
    table = front.alice.get(crowd.path, accept=KUBECTL)
    assert _first_cells(table) == list("abcdefg")
    assert {len(row["cells"]) for row in table["rows"]} == {len(table["columnDefinitions"])}


def test_T4_an_empty_list_is_a_table_without_rows(front: Front, team: Team) -> None:
    table = front.alice.get(team.path, accept=KUBECTL)
    assert table["rows"] == []
    assert table["columnDefinitions"]


def test_T5_cells_are_strings_or_blank(front: Front, crowd: Team) -> None:
    for row in front.alice.get(crowd.path, accept=KUBECTL)["rows"]:
        assert all(cell is None or isinstance(cell, str) for cell in row["cells"])


def test_T6_T7_the_age_is_reckoned_here(front: Front, crowd: Team) -> None:
    ages = _column(front.alice.get(crowd.path, accept=KUBECTL), "Age")
    assert all(re.fullmatch(r"\d+s|[2-9]m(\d+s)?", age) for age in ages), ages


def _is_metadata(shown: Object) -> bool:
    return bool(
        (shown["kind"], shown["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
        and shown.keys() == {"kind", "apiVersion", "metadata"}
    )


@pytest.mark.parametrize(
    ("query", "is_right"),
    [
        ({}, _is_metadata),
        ({"includeObject": ""}, _is_metadata),
        ({"includeObject": "Metadata"}, _is_metadata),
        ({"includeObject": "Object"}, lambda shown: shown["status"]["phase"]),
        ({"includeObject": "None"}, lambda shown: shown is None),
    ],
)
def test_T8_rows_carry_what_was_asked_for(
    front: Front, crowd: Team, query: dict[str, str], is_right: Callable[[Object], object]
) -> None:
    for path in ("", "/a"):
        for row in front.alice.get(crowd.path + path, accept=KUBECTL, **query)["rows"]:
            assert is_right(row["object"])


def test_T8_other_objects_are_not_carried(front: Front, crowd: Team) -> None:
    answer = front.alice.send(crowd.path, accept=KUBECTL, includeObject="Everything")
    assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest")
    # Who wants no Table is not refused for it.
    assert names(front.alice.get(crowd.path, includeObject="Everything"))
    assert refusal(front.alice, f"{crowd.path}/nobody", 404, includeObject="Object")


def test_T9_namespace_and_labels_come_with_the_rows(front: Front, crowd: Team) -> None:
    table = front.alice.get(crowd.path, accept=KUBECTL)
    assert "Namespace" not in [column["name"] for column in table["columnDefinitions"]]
    shown = table["rows"][0]["object"]["metadata"]
    assert shown == front.alice.get(f"{crowd.path}/a")["metadata"]
    assert (shown["namespace"], shown["labels"]) == (crowd.namespace, {"model": "bert", "size": "large"})


def test_T10_a_table_is_paged_and_numbered_as_its_list(front: Front, crowd: Team) -> None:
    table = front.alice.get(crowd.path, accept=KUBECTL, limit=3)
    assert _first_cells(table) == ["a", "b", "c"]
    assert table["metadata"]["remainingItemCount"] == 4
    rest = front.alice.get(crowd.path, accept=KUBECTL, **{"continue": table["metadata"]["continue"]})
    assert _first_cells(rest) == ["d", "e", "f", "g"]
    assert revision(rest) == revision(table)
    one = front.alice.get(f"{crowd.path}/a", accept=KUBECTL)
    assert revision(one) == revision(crowd.document("a"))


def test_T11_the_subresource_is_a_table_too(front: Front, crowd: Team) -> None:
    parent, below = (front.alice.get(f"{crowd.path}/a{end}", accept=KUBECTL) for end in ("", "/progress"))
    assert _first_cells(below) == ["a"]
    assert below["columnDefinitions"] == parent["columnDefinitions"]


def test_T12_rows_of_finished_jobs_are_marked(front: Front, team: Team) -> None:
    team.fill("done", "open")
    team.complete("done")
    done, still = front.alice.get(team.path, accept=KUBECTL)["rows"]
    assert [(each["type"], each["status"]) for each in done["conditions"]] == [("Completed", "True")]
    assert not still.get("conditions")


def test_T4_a_job_that_reports_fills_the_cells(fronts: dict[str, Front], team: Team) -> None:
    # Only here a real process trains: all the other jobs have nothing to say.
    team.workspace.start_job("bert", REPORTING)
    team.workspace.wait_reporting("bert")
    for front in fronts.values():
        table = front.alice.get(team.path, accept=KUBECTL)
        shown = {column["name"]: _column(table, column["name"])[0] for column in table["columnDefinitions"]}
        assert shown["Phase"] == "Running"
        assert shown["Loss"] == "0.5"
        assert shown["Step"].endswith("/100000")
        assert shown["Pod"].startswith("bert-node-0-0")
        assert shown["Source"] == "exec"
