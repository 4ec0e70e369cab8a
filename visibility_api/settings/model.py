"""Every setting of `visibility-api serve`, once: name, type, default, bounds and help.

A field `probe_interval` is the flag `--probe-interval`, the variable `VISIBILITY_PROBE_INTERVAL` and the key
`probe-interval` of the file that `--config` names; they take precedence in this order. Flag names are those
that Kubernetes components use. Everything that is wrong is reported together, by `read_settings`.

Unknown variables are not refused: in a pod Kubernetes itself sets VISIBILITY_API_SERVICE_HOST and others, for
a Service that is called visibility-api. Unknown keys of the file are.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from visibility_api.models.sources import SOURCES

from .file import ConfigFile
from .values import (
    MAX_METRICS,
    AnyPath,
    Conflict,
    Directory,
    File,
    Metavar,
    Switch,
    Words,
    archive_location,
    collector_url,
    duration,
    each,
    header_name,
    ip_address,
    is_metric,
    is_namespace,
    is_nats,
    is_peer,
    metric_names,
    name_prefix,
    namespace,
    seconds,
    secret_name,
    whole_number,
)

ENVIRONMENT_PREFIX = "VISIBILITY_"
PROBE_TIMEOUT = timedelta(seconds=5)


class Settings(BaseSettings):
    """Read once, by `read_settings`. The description says what None or an empty value means."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, extra="forbid", frozen=True)

    config: File = Field(
        default=None,
        description="YAML file with settings by flag name, such as `probe-interval: 30s`. Variables and"
        " flags take precedence over it",
    )
    v: Annotated[int, whole_number(0, 10), Metavar("LEVEL")] = Field(
        default=0, description="log verbosity, 0 to 10. From 4 on each probe is logged"
    )

    kubeconfig: File = Field(
        default=None,
        description="kubeconfig file for kube-apiserver. Without it the pod's service account is used",
    )
    authentication_kubeconfig: File = Field(
        default=None, description="kubeconfig file for TokenReviews. Without it --kubeconfig applies"
    )
    authorization_kubeconfig: File = Field(
        default=None, description="kubeconfig file for SubjectAccessReviews. Without it --kubeconfig applies"
    )
    authentication_tolerate_lookup_failure: Switch = Field(
        default=False,
        description="start even if the ConfigMap extension-apiserver-authentication cannot be read. Then"
        " no front proxy is trusted",
    )
    namespaces: Annotated[Words, each(is_namespace, "give namespace names, separated by commas")] = Field(
        default=(), description="serve the jobs of these namespaces only. Without it, of all"
    )

    kinds: AnyPath = Field(
        default=None,
        description="file, or directory of YAML files, that describes further kinds of jobs (docs/kinds.md)."
        " It is read again when it changes",
    )

    bind_address: Annotated[str, AfterValidator(ip_address), Metavar("IP")] = Field(
        default="0.0.0.0",  # noqa: S104 - a pod is reached from outside
        description="address to listen on. 0.0.0.0 and :: both mean IPv4 and IPv6",
    )
    secure_port: Annotated[int, whole_number(0, 65535), Metavar("PORT")] = Field(
        default=10250,  # the port that firewalls of private control planes let through
        description="HTTPS port. 0 means any free port",
    )
    tls_cert_file: File = Field(
        default=None, description="serving certificate, PEM. It is reloaded when the file changes"
    )
    tls_private_key_file: File = Field(default=None, description="private key of --tls-cert-file, PEM")
    certificate_secret: Annotated[str, AfterValidator(secret_name), Metavar("NAME")] = Field(
        default="",
        description="Secret in --lease-namespace in which the replicas keep a CA and a serving certificate."
        " They make and renew both, and publish the CA in the APIService and in the ConfigMap"
        " visibility-api-ca. Instead of --tls-cert-file",
    )
    certificate_lifetime: Annotated[timedelta, duration(30, 3650 * 86400), Metavar("DURATION")] = Field(
        default=timedelta(days=90),
        description="lifetime of a certificate of --certificate-secret. It is renewed when a third is left",
    )
    cert_dir: Annotated[Path, Metavar("DIR")] = Field(
        default=Path("apiserver.local.config/certificates"),
        description="directory for a self-signed certificate, made when neither --tls-cert-file nor"
        " --certificate-secret is given",
    )
    shutdown_delay_duration: Annotated[timedelta, duration(0, 600), Metavar("DURATION")] = Field(
        default=timedelta(seconds=5),  # longer than endpoints take to follow
        description="how long to keep serving after /readyz begins to fail",
    )

    trusted_proxy_client_ca_file: File = Field(
        default=None,
        description="CA of a proxy that authenticates users itself, such as an ingress with OIDC, PEM. It is"
        " reloaded when the file changes. The proxy's client certificate is verified for each request."
        " Without it no such proxy is trusted",
    )
    trusted_proxy_allowed_names: Annotated[
        Words, each(lambda name: name.isprintable(), "give common names, separated by commas")
    ] = Field(default=(), description="common names of that proxy's client certificate. May be repeated")
    trusted_proxy_user_header: Annotated[str, AfterValidator(header_name), Metavar("NAME")] = Field(
        default="", description="header in which that proxy names the user, such as kubeflow-userid"
    )
    trusted_proxy_group_header: Annotated[str, AfterValidator(header_name), Metavar("NAME")] = Field(
        default="",
        description="header in which that proxy names the user's groups, separated by commas. Without it"
        " users have no groups",
    )
    trusted_proxy_user_prefix: Annotated[str, AfterValidator(name_prefix), Metavar("TEXT")] = Field(
        default="", description="what is put before that proxy's user names, such as oidc:"
    )
    trusted_proxy_group_prefix: Annotated[str, AfterValidator(name_prefix), Metavar("TEXT")] = Field(
        default="", description="what is put before that proxy's group names, such as oidc:"
    )

    sources: Annotated[
        Words, each(lambda source: source in SOURCES, f"choose among {', '.join(SOURCES)}")
    ] = Field(
        default=("exec", "status"),
        description=f"where progress is read, of {', '.join(SOURCES)}. May be repeated. Each source needs"
        " rights of its own",
    )
    probe_interval: Annotated[timedelta, duration(1, 3600), Metavar("DURATION")] = Field(
        default=timedelta(seconds=15), description="time between two probes of one job, at least 1s"
    )
    probe_timeout: Annotated[timedelta, duration(0.1, 600), Metavar("DURATION")] = Field(
        default_factory=lambda given: min(PROBE_TIMEOUT, given.get("probe_interval", PROBE_TIMEOUT)),
        description="time limit of one probe, connection included. At most --probe-interval (default: 5s,"
        " or --probe-interval when that is shorter)",
    )
    probe_concurrency: Annotated[int, whole_number(1, 1024), Metavar("N")] = Field(
        default=256, description="how many probes may run at the same time, 1 to 1024"
    )
    peers: Annotated[Words, each(is_peer, "give HOST or HOST:PORT, separated by commas")] = Field(
        default=(),
        description="other replicas. The one that holds the Lease trainjob-visibility owns the jobs: it"
        " probes them and takes pushes. The others follow it. Each is HOST or HOST:PORT, or a name of"
        " several replicas. May be repeated. All replicas must serve the same certificate",
    )
    store: Annotated[Words, each(is_nats, "give URLs such as nats://HOST:4222, without credentials")] = Field(
        default=(),
        description="servers of NATS with JetStream that keep the log of the jobs, nats://HOST:PORT or"
        " tls://HOST:PORT (docs/nats.md). Replicas follow it instead of each other; --peers is not needed."
        " May be repeated",
    )
    store_name: Annotated[str, AfterValidator(namespace), Metavar("NAME")] = Field(
        default="trainjob-visibility",
        description="begins the names in --store: subject NAME.log, stream NAME-log, bucket NAME-jobs",
    )
    store_replicas: Annotated[int, whole_number(1, 5), Metavar("N")] = Field(
        default=3, description="servers of --store that have each message, 1 to 5, when the log is made"
    )
    store_max_mib: Annotated[int, whole_number(64, 1_000_000), Metavar("MIB")] = Field(
        default=1024, description="size limit of the stream in --store, in MiB, when it is made"
    )
    store_credentials_file: File = Field(
        default=None,
        description="what --store asks for: a credentials file with JWT and nkey, a seed of an nkey,"
        " USER:PASSWORD, or a token. It is read again when it changes",
    )
    store_ca_file: File = Field(default=None, description="CA of --store. Without it the system's")
    store_cert_file: File = Field(default=None, description="client certificate for --store, PEM")
    store_key_file: File = Field(default=None, description="private key of --store-cert-file, PEM")
    upstreams: Directory = Field(
        default=None,
        description="directory with a kubeconfig for each other cluster that has a server like this one. The"
        " file is named like the cluster. Jobs that MultiKueue runs there are shown here as they are there"
        " (docs/federation.md)",
    )
    data_dir: Directory = Field(
        default=None,
        description="directory to keep the state of the jobs in, so that a restart loses nothing. Each"
        " replica needs one of its own. Without it state is kept in memory only",
    )
    data_dir_max_mib: Annotated[int, whole_number(16, 65536), Metavar("MIB")] = Field(
        default=256,  # 10,000 jobs have some 20
        description="size limit of the state in --data-dir, in MiB, 16 to 65536. At it large and old states"
        " are removed first",
    )
    data_dir_max_age: Annotated[timedelta, duration(3600, 87600 * 3600), Metavar("DURATION")] = Field(
        default=timedelta(days=90),
        description="the state of a job that has not changed for so long is removed from --data-dir",
    )
    archive: Annotated[str, AfterValidator(archive_location), Metavar("LOCATION")] = Field(
        default="",
        description="directory, or URL of s3, gs or az, that keeps what was known of each job when it"
        " ended or was deleted. It is served as jobrecords (docs/archive.md). All replicas need the same one",
    )
    archive_max_age: Annotated[timedelta, duration(3600, 87600 * 3600), Metavar("DURATION")] = Field(
        default=timedelta(days=365),
        description="days of --archive in which nothing was written for so long are removed",
    )
    archive_namespace_max_mib: Annotated[int, whole_number(1, 1_000_000), Metavar("MIB")] = Field(
        default=1024,  # some 50,000 jobs
        description="size limit of one namespace in --archive, in MiB. At it the oldest days go first",
    )
    write_back: Switch = Field(
        default=False,  # each change is a write to etcd and needs a right to write
        description="write a summary to each TrainJob's status.trainerStatus, at most every 30s per job",
    )

    events: Switch = Field(
        default=False,  # each is a write to etcd and needs rights to write
        description="write an Event on a job when it stalls, recovers, diverges, straggles, plateaus,"
        " ends, or may not be probed. The replica that owns the jobs writes",
    )
    node_faults: Switch = Field(
        default=False,  # it needs a right on nodes
        description="read the nodes of a job that fails, and their Events in the namespace default. A fault"
        " of a node is then named as the cause",
    )
    job_metrics: Annotated[int, whole_number(0, 50_000), Metavar("N")] = Field(
        default=0,  # each job is some 40 series
        description="serve metrics of at most so many jobs at /metrics/jobs, in equal shares of namespaces."
        " The replica that owns the jobs has them. 0 means none",
    )
    job_metric_names: Annotated[
        Words, AfterValidator(metric_names), each(is_metric, "give names of metrics, separated by commas")
    ] = Field(
        default=("loss",),
        description=f"metrics that runs report, to be shown at /metrics/jobs, at most {MAX_METRICS}."
        " May be repeated",
    )
    otlp_endpoint: Annotated[str, AfterValidator(collector_url), Metavar("URL")] = Field(
        default="",
        description="push the metrics of --job-metrics to this OpenTelemetry collector, by OTLP over HTTP."
        " Without it nothing is pushed",
    )
    otlp_headers_file: File = Field(
        default=None,
        description="headers of these pushes, such as `Authorization: Bearer …`, one a line",
    )
    otlp_ca_file: File = Field(default=None, description="CA of --otlp-endpoint. Without it the system's")
    otlp_interval: Annotated[timedelta, duration(10, 3600), Metavar("DURATION")] = Field(
        default=timedelta(seconds=60), description="time between two pushes to --otlp-endpoint"
    )
    lease_namespace: Annotated[str, AfterValidator(namespace), Metavar("NAMESPACE")] = Field(
        default="trainjob-visibility",
        description="namespace of this server: of the Lease of --peers, and of --certificate-secret",
    )

    @field_validator("tls_private_key_file")
    @classmethod
    def _both_or_neither(cls, key: Path | None, info: ValidationInfo) -> Path | None:
        if "tls_cert_file" in info.data and (info.data["tls_cert_file"] is None) != (key is None):
            raise Conflict("--tls-cert-file and --tls-private-key-file: give both or neither")
        return key

    @field_validator("store_key_file")
    @classmethod
    def _both_of_the_store(cls, key: Path | None, info: ValidationInfo) -> Path | None:
        if (info.data.get("store_cert_file") is None) != (key is None):
            raise Conflict("--store-cert-file and --store-key-file: give both or neither")
        return key

    @field_validator("certificate_secret")
    @classmethod
    def _one_certificate(cls, name: str, info: ValidationInfo) -> str:
        if name and info.data.get("tls_cert_file") is not None:
            raise Conflict("--tls-cert-file and --certificate-secret: give one of them")
        return name

    @field_validator("trusted_proxy_user_header")
    @classmethod
    def _all_of_the_proxy_or_nothing(cls, header: str, info: ValidationInfo) -> str:
        given = [
            info.data.get("trusted_proxy_client_ca_file") is not None,
            bool(info.data.get("trusted_proxy_allowed_names")),
            bool(header),
        ]
        if any(given) and not all(given):
            raise Conflict(
                "--trusted-proxy-client-ca-file, --trusted-proxy-allowed-names and"
                " --trusted-proxy-user-header: give all three or none"
            )
        return header

    @field_validator("otlp_endpoint")
    @classmethod
    def _with_metrics(cls, url: str, info: ValidationInfo) -> str:
        if url and not info.data.get("job_metrics", 1):
            raise Conflict("--otlp-endpoint pushes the metrics of --job-metrics: give that as well")
        return url

    @field_validator("probe_timeout")
    @classmethod
    def _at_most_the_interval(cls, timeout: timedelta, info: ValidationInfo) -> timedelta:
        interval = info.data.get("probe_interval", timeout)
        if timeout > interval:
            raise Conflict(
                f"--probe-timeout {seconds(timeout)} must not exceed --probe-interval {seconds(interval)}"
            )
        return timeout

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - not read
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - not read
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The first one takes precedence; `init_settings` are the flags."""
        return init_settings, env_settings, ConfigFile(settings_cls)
