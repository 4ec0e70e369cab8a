"""The samples of each kind, by the schemas of its CRD: nothing that a controller could not have written."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from tests.e2e.crds import Definitions, schema, versions
from tests.kinds import DESCRIBED, SAMPLES, Sample

Object = dict[str, Any]
NATIVE = {"Job": "IoK8sApiBatchV1Job", "Pod": "IoK8sApiCoreV1Pod"}


def without_unknown(found: Object) -> Object:
    """The schema as one of JSON Schema that refuses what kube-apiserver prunes."""
    if "x-kubernetes-int-or-string" in found:
        return {"type": ["integer", "string"]}
    made = {**found}
    if "properties" in found:
        made["properties"] = {key: without_unknown(each) for key, each in found["properties"].items()}
        made["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if key in found:
            made[key] = without_unknown(found[key])
    return made


def schema_of(api: str, plural: str, kind: str) -> Object | None:
    group, version = api.removeprefix("/apis/").rpartition("/")[::2]
    for crd in Definitions().of_operators() + Definitions().core():
        if crd["metadata"]["name"] == f"{plural}.{group}":
            return versions(crd)[version]
    return schema(NATIVE[kind]) if kind in NATIVE else None


@pytest.mark.parametrize("sample", [*SAMPLES, DESCRIBED], ids=lambda sample: sample.id)
def test_a_sample_has_only_what_its_crd_has(sample: Sample) -> None:
    statuses = [*sample.states.values(), sample.restarting]
    objects = [
        (sample, {"spec": sample.spec | sample.suspension}),
        *((sample, {"status": each}) for each in statuses),
    ]
    objects += [(part, {"spec": part.spec}) for part in sample.parts if part.spec]
    for owner, object_ in objects:
        found = schema_of(owner.api, owner.plural, owner.kind)
        if found is None:
            assert owner.kind == "StatefulSet"
            continue
        (key,) = object_
        validator = jsonschema.Draft202012Validator(without_unknown(found["properties"][key]))
        assert [error.message for error in validator.iter_errors(object_[key])] == []
