"""OpenAPI, v3 and v2: O1 to O10, and the published files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from apidocs.__main__ import PUBLISHED as RESOURCES_PUBLISHED, published
from apidocs.schemas import META, PREFIX
from tests.unit.api_shell import Shell
from visibility_api.app.openapi import FOLDER, ONE_YEAR_S, OpenApi, of_resources
from visibility_api.jobs.job import Phase
from visibility_api.kinds import RESOURCES

GROUP = "visibility.trainer.kubeflow.org"
KEY = f"apis/{GROUP}/v1alpha1"
BASE = f"/{KEY}"
DOCUMENT = f"/openapi/v3{BASE}"
PROTOBUF = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
KIND = {"group": GROUP, "version": "v1alpha1", "kind": "TrainJobProgress"}
PUBLISHED = Path(__file__).parents[2] / "visibility_api" / FOLDER
NOW_S = 1_700_000_000.0
V3, SWAGGER = (json.loads((PUBLISHED / name).read_bytes()) for name in ("v3.json", "v2.json"))
COMPONENTS = ("schemas", "parameters", "responses")


@pytest.fixture
def shell() -> Shell:
    shell = Shell()
    shell.app.state.openapi = OpenApi(lambda: RESOURCES_PUBLISHED, now_s=lambda: NOW_S)
    return shell


async def hash_of(shell: Shell) -> str:
    url: str = (await shell.get("/openapi/v3")).json()["paths"][KEY]["serverRelativeURL"]
    path, _, query = url.partition("?hash=")
    assert path == DOCUMENT
    return query


def test_the_published_files_are_those_that_are_made() -> None:
    """`make openapi` writes them."""
    made = published(RESOURCES_PUBLISHED)
    assert [name for name, body in made.items() if (PUBLISHED / name).read_bytes() != body] == []


@pytest.mark.parametrize(("path", "document"), [("/openapi/v2", SWAGGER), (DOCUMENT, V3)], ids=["v2", "v3"])
async def test_the_published_files_are_what_the_server_serves(
    shell: Shell, path: str, document: dict[str, Any]
) -> None:
    assert (await shell.get(path)).json() == document


async def test_what_is_shown_is_of_the_kinds_that_discovery_shows() -> None:
    served = (RESOURCES[0], *RESOURCES_PUBLISHED[-2:])
    made = published(served)
    for document, name in ((V3, "v3.json"), (SWAGGER, "v2.json")):
        assert of_resources(document, served) == json.loads(made[name])
        assert of_resources(document, RESOURCES_PUBLISHED) == document


async def test_a_kind_that_comes_changes_hash_and_document() -> None:
    served = [RESOURCES[0]]
    shell = Shell()
    shell.app.state.openapi = OpenApi(lambda: tuple(served))
    first, index = await shell.get(DOCUMENT), (await shell.get("/openapi/v3")).json()
    served.append(RESOURCES[1])
    second = await shell.get(DOCUMENT)
    assert first.header("etag") != second.header("etag")
    assert (await shell.get("/openapi/v3")).json() != index
    assert [f"{BASE}/jobsets" in each.json()["paths"] for each in (first, second)] == [False, True]
    assert (await shell.get(DOCUMENT, ("If-None-Match", str(second.header("etag"))))).status == 304


def test_the_published_push_protocol_describes_every_path_and_the_body() -> None:
    document = json.loads((PUBLISHED / "push.json").read_bytes())
    places = [(path.split("/")[2], path.split("/")[6]) for path in document["paths"] if "{name}" in path]
    assert f"/apis/{GROUP}/v1alpha1/push" in document["paths"]
    kinds = [(GROUP, each.plural) for each in RESOURCES]
    assert places == [("trainer.kubeflow.org", "trainjobs"), *kinds]
    for operations in document["paths"].values():
        (operation,) = operations.values()
        schemas = [
            operation["requestBody"]["content"]["application/json"]["schema"],
            operation["responses"]["200"]["content"]["application/json"]["schema"],
        ]
        assert schemas == [{"$ref": "#/components/schemas/TrainerStatusUpdate"}] * 2
    assert "trainerStatus" in document["components"]["schemas"]["TrainerStatusUpdate"]["properties"]


async def test_the_root_lists_our_group_version_and_nothing_else(shell: Shell) -> None:
    """O1: another key could shadow the cluster's own."""
    answer = await shell.get("/openapi/v3")
    assert list(answer.json()["paths"]) == [KEY]
    assert answer.header("etag") is not None


async def test_the_hash_of_the_present_document_may_be_kept_for_a_year(shell: Shell) -> None:
    """O4."""
    answer = await shell.get(f"{DOCUMENT}?hash={await hash_of(shell)}&timeout=32s")
    assert (answer.status, answer.header("cache-control")) == (200, "public, immutable")
    assert answer.header("vary") == "Accept"
    expires = answer.header("expires")
    assert expires is not None
    assert parsedate_to_datetime(expires).timestamp() == NOW_S + ONE_YEAR_S


@pytest.mark.parametrize("query", ["", "?hash=STALE", "?hash="])
async def test_a_stale_hash_gets_the_present_document_and_no_redirect(shell: Shell, query: str) -> None:
    """O5, D15: the aggregator turns a redirect into a 502."""
    answer = await shell.get(DOCUMENT + query)
    assert (answer.status, answer.header("cache-control")) == (200, "no-cache, private")
    assert answer.header("expires") is None
    assert answer.json()["openapi"] == "3.0.0"


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3", DOCUMENT])
async def test_a_document_is_sent_once_to_whoever_keeps_it(shell: Shell, path: str) -> None:
    """O1, O4, O7: a 304 only to whoever names the tag."""
    first = await shell.get(path)
    etag = first.header("etag")
    assert etag is not None
    assert (await shell.get(path, ("If-None-Match", '"other"'))).status == 200
    second = await shell.get(path, ("If-None-Match", etag))
    assert (second.status, second.body, second.header("etag")) == (304, b"", etag)


@pytest.mark.parametrize("path", ["/openapi/v2", DOCUMENT])
@pytest.mark.parametrize(
    "accept", [PROTOBUF, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "text/html"]
)
async def test_what_is_not_json_is_a_bare_406(shell: Shell, path: str, accept: str) -> None:
    """O4."""
    answer = await shell.get(path, ("Accept", accept))
    assert (answer.status, answer.body) == (406, b"")


@pytest.mark.parametrize(
    "accept", ["application/json", "*/*", f"{PROTOBUF},application/json", "application/*"]
)
async def test_json_is_given_to_whoever_takes_it(shell: Shell, accept: str) -> None:
    """O4."""
    answer = await shell.get(DOCUMENT, ("Accept", accept))
    assert (answer.status, answer.header("content-type")) == (200, "application/json")


@pytest.mark.parametrize("path", [f"{BASE}/trainjobs", f"{BASE}/namespaces/{{namespace}}/trainjobs/{{name}}"])
def test_explain_finds_the_resource_by_its_operations(path: str) -> None:
    """O9: one object on the operation, an array with an equal one on the schema."""
    document = V3
    assert document["paths"][path]["get"]["x-kubernetes-group-version-kind"] == KIND
    assert document["components"]["schemas"][f"{PREFIX}TrainJobProgress"][
        "x-kubernetes-group-version-kind"
    ] == [KIND]


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("/trainjobs", "list"),
        ("/namespaces/{namespace}/trainjobs", "list"),
        ("/namespaces/{namespace}/trainjobs/{name}", "get"),
        ("/namespaces/{namespace}/trainjobs/{name}/progress", "get"),
    ],
)
def test_each_operation_names_its_action(path: str, action: str) -> None:
    """O10."""
    assert V3["paths"][BASE + path]["get"]["x-kubernetes-action"] == action


def test_operation_ids_are_unique() -> None:
    ids = [item["get"]["operationId"] for item in V3["paths"].values()]
    assert len(set(ids)) == len(ids)


def test_only_our_own_paths_are_in_it() -> None:
    """O7: all others would be filtered out."""
    for document in (SWAGGER, V3):
        assert all(path.startswith(BASE + "/") for path in document["paths"])


@pytest.mark.parametrize(
    ("document", "prefix", "held"),
    [
        *((V3, f"#/components/{part}/", V3["components"][part]) for part in COMPONENTS),
        *((SWAGGER, f"#/{part}/", SWAGGER[part]) for part in ("definitions", "parameters")),
    ],
    ids=[*(f"v3 {part}" for part in COMPONENTS), "v2 definitions", "v2 parameters"],
)
def test_every_reference_leads_somewhere_and_every_component_is_referred_to(
    document: dict[str, Any], prefix: str, held: dict[str, Any]
) -> None:
    """O7."""
    referred = set(re.findall(re.escape(prefix) + r'([^"]+)', json.dumps(document)))
    assert referred == set(held)


def test_names_are_our_own_or_kubernetes_own() -> None:
    """O8: definitions are merged across the cluster."""
    names = SWAGGER["definitions"]
    assert all(name.startswith((PREFIX, META)) for name in names)
    assert PREFIX == "org.kubeflow.trainer.visibility.v1alpha1."


def test_v2_has_kubernetes_own_form() -> None:
    """O7, O8: no v3 words are left in it."""
    document = SWAGGER
    assert document["swagger"] == "2.0"
    text = json.dumps(document)
    assert '"allOf"' not in text
    assert '"default"' not in text
    assert "#/components" not in text
    condition = document["definitions"][f"{META}Condition"]
    assert condition["properties"]["lastTransitionTime"]["$ref"] == f"#/definitions/{META}Time"
    listing = document["paths"][f"{BASE}/trainjobs"]
    assert listing["get"]["produces"] == ["application/json", "application/yaml"]
    assert {"$ref": "#/parameters/visibility-watch"} in listing["parameters"]
    watch = document["parameters"]["visibility-watch"]
    assert {"name": "watch", "in": "query", "type": "boolean"}.items() <= watch.items()


def fields_of(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field


def test_every_field_is_described() -> None:
    """O9: kubectl explain reads well."""
    schemas = V3["components"]["schemas"]
    bare = [
        path
        for name, schema in schemas.items()
        if name.startswith(PREFIX)
        for path, field in fields_of(schema, name)
        if len(field.get("description", "")) < 10
    ]
    assert bare == []
    assert all(schemas[name].get("description") for name in schemas if name.startswith(PREFIX))


def test_every_parameter_is_described() -> None:
    parameters = V3["components"]["parameters"]
    assert set(parameters) - {"replicas-limit", "replicas-continue"} == {
        "allowWatchBookmarks", "attempt", "continue", "dryRun", "fieldSelector", "labelSelector", "limit",
        "lines", "maxPoints", "metric", "name", "namespace", "pretty", "previous", "records-since",
        "records-until", "replicas",
        "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "since", "sumBy", "timeout",
        "timeoutSeconds", "until", "watch", "window",
    }  # fmt: skip
    assert all(p["description"] for p in parameters.values())


@pytest.mark.parametrize("subresource", ["history", "log-tail"])
def test_a_record_s_subresource_publishes_nothing_that_it_ignores(subresource: str) -> None:
    """A record is served as it was written: none of the parameters of a job's, and no other form."""
    item = V3["paths"][f"{BASE}/namespaces/{{namespace}}/jobrecords/{{name}}/{subresource}"]
    given = {each["$ref"].rpartition("/")[2] for each in item["parameters"]}
    assert given == {"name", "namespace", "pretty", "timeout"}
    responses = item["get"]["responses"]
    assert set(responses["200"]["content"]) == {"application/json", "application/yaml"}
    assert "304" not in responses


def test_the_status_has_every_field_of_the_design() -> None:
    schemas = V3["components"]["schemas"]
    status = schemas[f"{PREFIX}ProgressStatus"]["properties"]
    assert set(status) == {
        "phase", "phaseReason", "phaseMessage", "attempts", "failure", "resources",
        "progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime",
        "estimatedCompletionTime", "estimatedCompletionRange", "startTime", "endTime", "durationSeconds",
        "steps", "epochs", "message", "checkpoint", "goodput", "diagnosis",
        "conditions", "rank0", "replicas", "observation",
        "replicaStatuses", "replicaStatusesTime", "replicaStatusesContinue",
    }  # fmt: skip
    assert status["phase"]["enum"] == [str(phase) for phase in Phase]


def test_a_list_has_items_and_a_document_has_none() -> None:
    """L1: anything with `items` at its top is taken for a list."""
    schemas = V3["components"]["schemas"]
    assert "items" in schemas[f"{PREFIX}TrainJobProgressList"]["properties"]
    assert "items" not in schemas[f"{PREFIX}TrainJobProgress"]["properties"]
