"""The links, in the order of a request: kube-apiserver, the APIService, the server, its jobs."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from visibility_api.certificates.expiry import NOTED, NOTED_SHARE
from visibility_api.certificates.making import BACKDATED
from visibility_api.certificates.renewal import is_signed, read_certificates
from visibility_api.certificates.secret import API_SERVICE, SERVICE
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError
from visibility_api.models.served import GROUP_VERSION

from .cluster import check_aggregation, check_kinds, check_kubernetes, check_trainer
from .look import Check, Finding, Look, Object, State, at, fault, listed, ok, run, warning
from .rights import arguments_of, check_rights
from .users import check_users

LEASE_S = 60  # an owner renews its Lease every two seconds
CLOCK_S = 10
_APPLY = "kubectl apply -k deploy/mine    # the directory that you applied; with Helm: helm upgrade"
_ABOVE = "mend what is named above"
_LOGS = "kubectl -n {namespace} logs -l app.kubernetes.io/name=trainjob-visibility --tail=100"
_JOBS = f"/apis/{GROUP_VERSION}/trainingjobs"


async def check_installed(look: Look) -> Finding:
    """Before anything is installed one thing is missing, not each of its parts."""
    service = f"/api/v1/namespaces/{look.namespace}/services/{SERVICE}"
    api_service = await look.read(API_SERVICE)
    deployment = await _deployment(look)
    if deployment is None and await look.read(service) is None:
        if api_service is None:
            return fault(
                "not installed: the cluster has no APIService of it, and the namespace"
                f" {look.namespace} no Deployment and no Service",
                "kubectl apply -k deploy/mine    # docs/install.md; it may take a minute",
                is_last=True,
            )
        elsewhere = at(api_service, "spec", "service", "namespace")
        if elsewhere != look.namespace:
            return fault(
                f"nothing is installed in the namespace {look.namespace}: the APIService names {elsewhere}",
                f"visibility-api check --namespace {elsewhere}",
                is_last=True,
            )
    image = at(deployment, "spec", "template", "spec", "containers", 0, "image")
    return ok(f"installed in the namespace {look.namespace}{f', with the image {image}' if image else ''}")


async def check_deployment(look: Look) -> Finding:
    found = await _deployment(look)
    if found is None:
        return fault(f"there is no Deployment visibility-api in namespace {look.namespace}", _APPLY)
    wanted, ready = at(found, "spec", "replicas") or 0, at(found, "status", "readyReplicas") or 0
    if not wanted:
        return fault(
            "the Deployment visibility-api is scaled to no pod",
            f"kubectl -n {look.namespace} scale deployment visibility-api --replicas=2",
        )
    if ready >= wanted > 0:
        return ok(f"{ready} of {wanted} pods are ready")
    why = await _waiting(look)
    finding = warning if ready else fault
    return finding(
        f"{ready} of {wanted} pods are ready{': ' + why if why else ''}",
        f"kubectl -n {look.namespace} describe pods; {_LOGS.format(namespace=look.namespace)}",
    )


async def _deployment(look: Look) -> Object | None:
    return await look.read(f"/apis/apps/v1/namespaces/{look.namespace}/deployments/visibility-api")


async def _waiting(look: Look) -> str:
    """Why the first pod that is not ready is not."""
    ours = (("labelSelector", "app.kubernetes.io/name=trainjob-visibility"),)
    for pod in await look.items(f"/api/v1/namespaces/{look.namespace}/pods", ours):
        for container in listed(pod, "status", "containerStatuses"):
            for state in ("waiting", "terminated"):
                if (found := at(container, "state", state)) is not None:
                    why = str(at(found, "message") or "")[:300]
                    return f"{at(found, 'reason') or state}: {why}".rstrip(": ")
        for condition in listed(pod, "status", "conditions"):
            if at(condition, "type") == "PodScheduled" and at(condition, "status") == "False":
                return str(at(condition, "message"))
    return ""


async def check_service(look: Look) -> Finding:
    core = f"/api/v1/namespaces/{look.namespace}/services/{SERVICE}"
    found = await look.read(core)
    if found is None:
        return fault(f"there is no Service {SERVICE} in namespace {look.namespace}", _APPLY)
    if at(found, "spec", "type") == "ExternalName":
        return ok(f"the Service {SERVICE} leads to {at(found, 'spec', 'externalName')}")
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{look.namespace}/endpointslices"
    ready, ports = 0, set()
    for each in await look.items(slices, (("labelSelector", f"kubernetes.io/service-name={SERVICE}"),)):
        ready += sum(at(end, "conditions", "ready") is not False for end in listed(each, "endpoints"))
        ports |= {at(port, "port") for port in listed(each, "ports")}
    if not ready:
        return fault(
            f"the Service {SERVICE} has no endpoint: no pod is ready, or its selector or port fits none",
            f"kubectl -n {look.namespace} get pods,endpointslices; {_APPLY}",
        )
    numbers = ", ".join(sorted(map(str, ports))) or "?"
    many = f"{ready} endpoint{'' if ready == 1 else 's'}"
    return ok(f"the Service {SERVICE} has {many} on port {numbers}")


async def check_api_service(look: Look) -> Finding:
    found = await look.read(API_SERVICE)
    if found is None:
        return fault("the API is not registered: there is no APIService", _APPLY)
    service = at(found, "spec", "service")
    named = f"{at(service, 'namespace')}/{at(service, 'name')}"
    if named != f"{look.namespace}/{SERVICE}":
        says = f"the APIService names the Service {named}, not {look.namespace}/{SERVICE}"
        if at(service, "name") == SERVICE:
            elsewhere = at(service, "namespace")
            return fault(says, f"visibility-api check --namespace {elsewhere}    # if it was installed there")
        return fault(says, _APPLY)
    if at(found, "spec", "insecureSkipTLSVerify"):
        return fault("kube-apiserver does not verify the server: insecureSkipTLSVerify is set", _APPLY)
    served = await look.read(f"/api/v1/namespaces/{look.namespace}/services/{SERVICE}")
    port = at(served, "spec", "ports", 0, "port")
    if port is not None and at(service, "port") != port:
        return fault(f"the APIService names port {at(service, 'port')}, but the Service has {port}", _APPLY)
    for condition in listed(found, "status", "conditions"):
        if at(condition, "type") == "Available" and at(condition, "status") != "True":
            why = f"{at(condition, 'reason')}: {at(condition, 'message')}"
            return fault(
                f"kube-apiserver does not reach the server: {why}",
                f'{_ABOVE}; else see docs/troubleshooting.md, "The server is down"',
            )
    return ok("the APIService is Available")


async def check_certificate(look: Look) -> Finding:
    """The certificate that pods serve, against the CAs that kube-apiserver trusts."""
    bundle = read_certificates(_decoded(at(await look.read(API_SERVICE), "spec", "caBundle")))
    restart = f"kubectl -n {look.namespace} rollout restart deploy/visibility-api"
    if not bundle:
        ready = at(await _deployment(look), "status", "readyReplicas")
        return fault(
            "the APIService has no caBundle: kube-apiserver trusts no certificate",
            f"{restart}    # the server puts it back within a minute as well" if ready else _ABOVE,
        )
    for name in ("visibility-api-certificate", "visibility-api-tls"):
        secret = await look.read(f"/api/v1/namespaces/{look.namespace}/secrets/{name}")
        chain = read_certificates(_decoded(at(secret, "data", "tls.crt")))
        if chain:
            return _judge(chain, bundle, f"{SERVICE}.{look.namespace}.svc", look.now(), restart)
    return Finding(State.UNKNOWN, "the certificate is in no Secret that is known; only its CA is there")


def _judge(
    chain: Sequence[x509.Certificate],
    bundle: Sequence[x509.Certificate],
    name: str,
    now: datetime,
    restart: str,
) -> Finding:
    leaf = chain[0]
    left = leaf.not_valid_after_utc - now
    if left <= timedelta():
        return fault(f"the certificate ended on {leaf.not_valid_after_utc:%Y-%m-%d %H:%M} UTC", restart)
    if not any(is_signed(each, ca) for each in chain for ca in bundle):
        return fault("the APIService's caBundle lacks the CA that has signed the certificate", restart)
    try:
        held = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = held.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        names = []
    if name not in names:
        return fault(f"the certificate is not for {name}", restart)
    says = f"the certificate lasts {left.days} days, and kube-apiserver trusts its CA"
    lasts = leaf.not_valid_after_utc - leaf.not_valid_before_utc - BACKDATED
    if left < min(NOTED, lasts / NOTED_SHARE):
        return warning(says, f"read why it is not renewed: {_LOGS.format(namespace=name.split('.')[1])}")
    return ok(says)


async def check_answer(look: Look) -> Finding:
    """Through kube-apiserver, as a user asks."""
    try:
        found = await look.read(_JOBS, (("limit", "1"),))
    except ApiError as error:
        if error.status == 503:
            return fault(
                f"the API answers 503: {error.message or 'kube-apiserver does not reach the server'}",
                f"{_ABOVE}, or wait until the jobs are listed; then {_LOGS.format(namespace=look.namespace)}",
            )
        raise
    if found is None:
        return fault("kube-apiserver does not know the API's resources", _ABOVE)
    return ok("training jobs can be listed through kube-apiserver")


async def check_owner(look: Look) -> Finding:
    if await _deployment(look) is None:
        return Finding(State.UNKNOWN, "not checked: there is no server")
    if not any(each.startswith("--peers") for each in await arguments_of(look)):
        return ok("a single replica: it owns the jobs")
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{look.namespace}/leases/trainjob-visibility"
    spec = at(await look.read(lease), "spec")
    holder, renewed = at(spec, "holderIdentity"), at(spec, "renewTime")
    logs = _LOGS.format(namespace=look.namespace)
    if not holder or renewed is None:
        return fault("no replica owns the jobs, so nothing new of them is learnt", logs)
    since_s = (await _server_time(look) - datetime.fromisoformat(renewed)).total_seconds()
    if since_s > LEASE_S:
        return fault(
            f"{holder} owned the jobs, and has not renewed its Lease for {since_s:.0f} s: it has ended, or"
            " its clock is behind",
            logs,
        )
    if since_s < -CLOCK_S:
        return fault(
            f"the clock of {holder} is {-since_s:.0f} s ahead of kube-apiserver's, so ages are wrong",
            f"timedatectl set-ntp true    # on the node of {holder}, or another NTP client's command",
        )
    return ok(f"{holder} owns the jobs")


async def _server_time(look: Look) -> datetime:
    """By kube-apiserver's clock. This machine's may be wrong."""
    created = at(await look.who(), "metadata", "creationTimestamp")
    return look.now() if created is None else datetime.fromisoformat(created)


async def check_jobs(look: Look) -> Finding:
    """Jobs that run and of which nothing is known, by the reason that each states."""
    try:
        found = await look.read(_JOBS, (("fieldSelector", "status.phase=Running"), ("limit", "500")))
    except ApiError as error:
        if error.status != 503:
            raise
        found = None
    if found is None:
        return Finding(State.UNKNOWN, "not checked: the API does not answer")
    jobs = listed(found, "items")
    reasons: Counter[str] = Counter()
    for job in jobs:
        for condition in listed(job, "status", "conditions"):
            if at(condition, "type") == "Reporting" and at(condition, "status") == "False":
                reasons[str(at(condition, "reason"))] += 1
    if not reasons:
        return ok(f"of {len(jobs)} running jobs every one that was asked reports")
    told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(5))
    return warning(
        f"of {len(jobs)} running jobs {reasons.total()} do not report: {told}",
        "find the reason in docs/troubleshooting.md",
    )


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(value) if isinstance(value, str) else b""
    except binascii.Error:
        return b""


CHECKS: Sequence[tuple[str, Check]] = (
    ("Kubernetes", check_kubernetes),
    ("aggregation layer", check_aggregation),
    ("kinds of jobs", check_kinds),
    ("Trainer", check_trainer),
    ("installation", check_installed),
    ("pods", check_deployment),
    ("Service", check_service),
    ("rights", check_rights),
    ("certificate", check_certificate),
    ("APIService", check_api_service),
    ("answers", check_answer),
    ("owner and clocks", check_owner),
    ("jobs", check_jobs),
    ("users", check_users),
)


async def check_installation(kubeconfig: Path | None, namespace: str) -> list[tuple[str, Finding]]:
    """What each check finds, for the cluster of this kubeconfig, or of this pod. Raises ClusterError."""
    async with await KubeClient.connect(kubeconfig) as client, await KubeClient.connect(kubeconfig) as server:
        own = () if kubeconfig is not None else own_arguments(Path("/proc/1/cmdline"))
        look = Look(client, namespace, server=server, own_arguments=own)
        server.acting_as = look.account
        return await run(look, CHECKS)


def own_arguments(of_first: Path) -> Sequence[str]:
    """Of the server, where this runs in its container: there it is the first process."""
    try:
        arguments = of_first.read_text(errors="replace").split("\0")
    except OSError:
        return ()
    return arguments[arguments.index("serve") :] if "serve" in arguments else ()
