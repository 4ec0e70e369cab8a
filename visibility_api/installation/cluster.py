"""What the cluster has to have: a version, an aggregation layer, kinds of jobs and who makes their pods."""

from __future__ import annotations

from visibility_api.kinds import KINDS

from .look import Finding, Look, at, fault, listed, ok, warning

OLDEST_MINOR = 30  # of Kubernetes 1
_TRAINER = (
    "kubectl apply --server-side -k"
    " 'https://github.com/kubeflow/trainer.git/manifests/overlays/manager?ref=v2.3.0'"
)
_CONTROLLER = "kubeflow-trainer-controller-manager"
_AGGREGATION = "https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/"
_EXTENSION = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


async def check_kubernetes(look: Look) -> Finding:
    version = await look.read("/version")
    minor = str(at(version, "minor") or "").rstrip("+")
    says = f"Kubernetes {at(version, 'gitVersion')}"
    if minor.isdecimal() and int(minor) < OLDEST_MINOR:
        return warning(f"{says} is older than 1.{OLDEST_MINOR}: nobody has tried this", "upgrade Kubernetes")
    return ok(says)


async def check_aggregation(look: Look) -> Finding:
    data = at(await look.read(_EXTENSION), "data")
    if not at(data, "requestheader-client-ca-file"):
        return fault(
            "kube-apiserver has no aggregation layer: the ConfigMap extension-apiserver-authentication in"
            " kube-system has no requestheader-client-ca-file",
            f"set kube-apiserver's --requestheader-… and --proxy-client-… flags: {_AGGREGATION}",
        )
    names = at(data, "requestheader-allowed-names") or "[]"
    return ok(f"kube-apiserver shows itself by a certificate of its front proxy's CA; names: {names}")


async def check_kinds(look: Look) -> Finding:
    """Those whose CRD the cluster has. Nothing can be shown of the others."""
    found, other = [], []
    own = dict.fromkeys(objects for kind in KINDS if not kind.is_assumed for objects in kind.own)
    for objects in [each for each in own if "." in each.api]:  # of a CRD
        resources = listed(await look.read(objects.api), "resources")
        if any(at(each, "name") == objects.plural for each in resources):
            found.append(objects.plural)
            continue
        _, group, version = objects.api.strip("/").split("/")
        versions = [at(each, "version") for each in listed(await look.read(f"/apis/{group}"), "versions")]
        if versions and version not in versions:
            other.append(f"{group} in {', '.join(map(str, versions))}, of which {version} is read here")
    crd = await look.read("/apis/trainer.kubeflow.org/v1alpha1")
    if not any(at(each, "name") == "trainjobs" for each in listed(crd, "resources")):
        return warning(
            "no TrainJob can be shown: the CRD of Kubeflow Trainer is missing. Other kinds:"
            f" {', '.join(found) or 'none'}",
            f"{_TRAINER}    # if you want TrainJobs",
        )
    if other:
        return warning(f"the cluster has {'; '.join(other)}", "see the versions in docs/kinds.md")
    return ok(f"kinds of the cluster: trainjobs, {', '.join(found) or 'no other'}")


async def check_trainer(look: Look) -> Finding:
    """Whether something makes pods of TrainJobs: Kubeflow Trainer, in whatever namespace."""
    crd = await look.read("/apis/trainer.kubeflow.org/v1alpha1")
    if not listed(crd, "resources"):
        return ok("the cluster has no TrainJobs, so nothing has to make pods of them")
    found = await look.items(
        "/apis/apps/v1/deployments", (("fieldSelector", f"metadata.name={_CONTROLLER}"),)
    )
    if not found:
        return warning(f"there is no Deployment {_CONTROLLER}: nobody makes pods of TrainJobs", _TRAINER)
    if not any(at(each, "status", "readyReplicas") for each in found):
        return warning(
            f"no pod of {_CONTROLLER} is ready: nobody makes pods of TrainJobs",
            f"kubectl get pods -A | grep {_CONTROLLER}",
        )
    return ok(f"{_CONTROLLER} makes pods of TrainJobs")
