"""The volumes a pod mounts, as directories: emptyDir, ConfigMap, Secret, and projected ones with tokens."""

from __future__ import annotations

import base64
from pathlib import Path

from localcluster.kubelet.containers import field_value, path_below
from localcluster.machinery.client import ApiClient
from localcluster.machinery.metadata import Object, key_of, uid_of
from localcluster.machinery.resources import BY_PLURAL
from localcluster.machinery.status import ApiError


async def prepare_volumes(client: ApiClient, pod: Object, directory: Path) -> dict[str, Path]:
    """Volume name → directory, filled; any other kind than the four is an empty one. Raises ApiError."""
    volumes: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes") or []:
        path = volumes[volume["name"]] = directory / ".volumes" / volume["name"]
        path.mkdir(parents=True, exist_ok=True)
        for source in (volume.get("projected") or {}).get("sources") or [volume]:
            await _fill(client, pod, path, source)
    return volumes


async def _fill(client: ApiClient, pod: Object, path: Path, source: Object) -> None:
    namespace = key_of(pod)[0]
    if "configMap" in source:
        stored = await _stored(
            client, "configmaps", source["configMap"]["name"], namespace, source["configMap"]
        )
        contents = {key: value.encode() for key, value in (stored.get("data") or {}).items()}
        _write(path, contents, source["configMap"].get("items"))
    elif "secret" in source:
        name = source["secret"].get("name") or source["secret"].get("secretName")
        stored = await _stored(client, "secrets", name, namespace, source["secret"])
        contents = {key: base64.b64decode(value) for key, value in (stored.get("data") or {}).items()}
        _write(path, contents, source["secret"].get("items"))
    elif "serviceAccountToken" in source:
        wanted = source["serviceAccountToken"]
        _write(path, {wanted["path"]: await _token(client, pod, wanted)}, None)
    elif "downwardAPI" in source:
        for item in source["downwardAPI"].get("items") or []:
            value = field_value(pod, item["fieldRef"]["fieldPath"])
            _write(path, {item["path"]: value.encode()}, None)


async def _stored(client: ApiClient, plural: str, name: str, namespace: str, source: Object) -> Object:
    """The ConfigMap or Secret; an empty one where the pod can do without."""
    try:
        return await client.get(plural, name, namespace)
    except ApiError as error:
        if error.code == 404 and source.get("optional"):
            return {}
        raise


async def _token(client: ApiClient, pod: Object, wanted: Object) -> bytes:
    """A token bound to this very pod. It is not renewed: pods here end before their tokens expire."""
    namespace, name = key_of(pod)
    account = pod["spec"].get("serviceAccountName") or "default"
    spec: Object = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid_of(pod)}}
    spec["expirationSeconds"] = wanted.get("expirationSeconds", 3600)
    if "audience" in wanted:
        spec["audiences"] = [wanted["audience"]]
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = BY_PLURAL["serviceaccounts"].path(namespace, account, "token")
    answer = await client.request("POST", path, body)
    return str(answer["status"]["token"]).encode()


def _write(directory: Path, contents: dict[str, bytes], items: list[Object] | None) -> None:
    chosen = contents
    if items and contents:
        chosen = {item["path"]: contents[item["key"]] for item in items}
    for name, content in chosen.items():
        target = path_below(directory, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
