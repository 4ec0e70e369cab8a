"""The CRDs of the tests' clusters: structural schemas from crds.yaml and the kinds' published Python models.

kube-apiserver prunes and validates by them what a test writes. `--crds DIR` takes the definitions in DIR's
YAML files in their place, such as those of an operator's release.
"""

from __future__ import annotations

import functools
import re
import typing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

Object = dict[str, Any]
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Of the controllers that every cluster of the tests has.
CORE = (
    "trainjobs.trainer.kubeflow.org",
    "trainingruntimes.trainer.kubeflow.org",
    "clustertrainingruntimes.trainer.kubeflow.org",
    "jobsets.jobset.x-k8s.io",
)
_FILE = Path(__file__).with_suffix(".yaml")
_APPROVED = {"api-approved.kubernetes.io": "unapproved, for tests"}  # required for groups under k8s.io
_TEXT: Object = {"type": "string"}
_TEXTS: Object = {"type": "object", "additionalProperties": _TEXT}
_ANY: Object = {"x-kubernetes-preserve-unknown-fields": True}
_INT_OR_STRING: Object = {"x-kubernetes-int-or-string": True}
_TIME: Object = {"type": "string", "format": "date-time"}
_SCHEMAS: dict[str, Object] = {
    **{name: {"type": name} for name in ("string", "integer", "number", "boolean")},
    **dict.fromkeys(("any", "object", "Any"), _ANY),
    **dict.fromkeys(("time", "datetime"), _TIME),
    "str": _TEXT,
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    **dict.fromkeys(("IoK8sApimachineryPkgApiResourceQuantity", "IntOrString"), _INT_OR_STRING),
    "IoK8sApimachineryPkgUtilIntstrIntOrString": _INT_OR_STRING,
    "IoK8sApimachineryPkgApisMetaV1ObjectMeta": {
        "type": "object",  # of a pod template, as controller-gen writes it
        "properties": {
            **dict.fromkeys(("annotations", "labels"), _TEXTS),
            **dict.fromkeys(("name", "namespace"), _TEXT),
            "finalizers": {"type": "array", "items": _TEXT},
        },
    },
}
# Where a name of crds.yaml or of the training-operator's models is found among Trainer's.
_PREFIXES = ("", "IoK8sApiCore", "IoK8sApimachineryPkgApisMeta", "IoK8sApimachineryPkgApiResource")


@dataclass(frozen=True)
class Definitions:
    """Of custom resources. `folder`: whose files' definitions come first."""

    folder: Path | None = None

    def core(self) -> list[Object]:
        return [self._get(name) for name in CORE]

    def of_operators(self) -> list[Object]:
        return [self._get(name) for name in _described() if name not in CORE]

    def _get(self, name: str) -> Object:
        return _given(self.folder).get(name) or _crd(name)


@functools.cache
def _described() -> dict[str, Object]:
    found: dict[str, Object] = yaml.safe_load(_FILE.read_text())
    return found


@functools.cache
def _given(folder: Path | None) -> dict[str, Object]:
    files = sorted(folder.glob("*.yaml")) if folder is not None else []
    objects = [each for file in files for each in yaml.safe_load_all(file.read_text()) if each]
    found = {each["metadata"]["name"]: each for each in objects if each["kind"] == "CustomResourceDefinition"}
    for each in found.values():
        each["metadata"].setdefault("annotations", {}).update(_APPROVED)
    return found


def versions(crd: Object) -> dict[str, Object]:
    """Schemas, by the names of the versions."""
    return {each["name"]: each["schema"]["openAPIV3Schema"] for each in crd["spec"]["versions"]}


@functools.cache
def _crd(name: str) -> Object:
    fields = _described()[name]
    plural, _, group = name.partition(".")
    kind, scope, bounds = fields["kind"], fields.get("scope", "Namespaced"), fields.get("bounds", {})
    schemas = {key: schema(value) for key, value in fields.items() if key not in ("kind", "scope", "bounds")}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": dict(_APPROVED)},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": number == 0,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": _bounded(_root(found), bounds)},
                }
                for number, (version, found) in enumerate(schemas.items())
            ],
        },
    }


def _root(found: Object) -> Object:
    properties = {key: found["properties"][key] for key in ("spec", "status") if key in found["properties"]}
    return {"type": "object", "properties": properties}


def _bounded(found: Object, bounds: Object) -> Object:
    """`bounds`: of schemas below, by their fields; copies what it changes, for schemas are shared."""
    if not bounds:
        return found
    merged = {**found}
    for key, more in bounds.items():
        old = found.get(key)
        merged[key] = _bounded(old, more) if isinstance(old, dict) and isinstance(more, dict) else more
    return merged


def schema(type_: str | list[Any] | Object) -> Object:
    """Of a type as crds.yaml has it."""
    if isinstance(type_, str):
        return _named(type_)
    if isinstance(type_, list):
        return {"type": "array", "items": schema(type_[0])}
    if "*" in type_:
        return {"type": "object", "additionalProperties": schema(type_["*"])}
    fields = {key.rstrip("!"): schema(value) for key, value in type_.items()}
    return _fields(fields, [key.rstrip("!") for key in type_ if key.endswith("!")])


def _fields(properties: Object, required: list[str]) -> Object:
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


@functools.cache
def _named(name: str) -> Object:
    if (parsed := re.fullmatch(r"(list|dict)[\[(](?:str, )?(.+)[\])]", name)) is not None:
        kind, inner = parsed.groups()
        return schema([inner] if kind == "list" else {"*": inner})
    import kubeflow_trainer_api.models as trainer  # slow: a quarter of what collecting all tests takes

    names = [prefix + name.replace("K8sIo", "IoK8s") for prefix in _PREFIXES]
    found = next((model for each in names if (model := getattr(trainer, each, None))), None)
    if (known := _SCHEMAS.get(found.__name__ if found else name)) is not None:
        return known
    return _of_pydantic(found) if found is not None else _of_openapi(_operator_model(name))


def _operator_model(name: str) -> Any:
    import kubeflow.training.models as operator  # slow, and only some tests need it

    return getattr(operator, name)


def _of_pydantic(model: type[BaseModel]) -> Object:
    fields = {each.alias or name: each for name, each in model.model_fields.items()}
    return _fields(
        {name: _of_annotation(each.annotation) for name, each in fields.items()},
        [name for name, each in fields.items() if each.is_required()],
    )


def _of_annotation(annotation: Any) -> Object:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list:
        return {"type": "array", "items": _of_annotation(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of_annotation(arguments[1])}
    if origin is not None:  # Optional, Union or Annotated
        return _of_annotation(arguments[0])
    return _TIME if annotation is datetime else _named(annotation.__name__)


def _of_openapi(model: Any) -> Object:
    """Of a class by openapi-generator's older template, whose setters refuse None for what is required."""
    made, required = object.__new__(model), []
    made.local_vars_configuration = _Validating
    for attribute, name in model.attribute_map.items():
        try:
            setattr(made, attribute, None)
        except ValueError:
            required.append(name)
    types = model.openapi_types
    return _fields({name: _named(types[key]) for key, name in model.attribute_map.items()}, required)


class _Validating:
    client_side_validation = True
