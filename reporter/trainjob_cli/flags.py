"""kubectl's own flags, which every command has."""

from __future__ import annotations

from typing import Any, Callable, Optional

import click

from .api import Api, UsageError
from .waiting import read_duration

_VALUED = (  # flags of kubectl with a value, for every command
    ("--kubeconfig", "FILE", "The kubeconfig to use."),
    ("--context", "NAME", "The context of the kubeconfig."),
    ("--cluster", "NAME", "The cluster of the kubeconfig."),
    ("--user", "NAME", "The user of the kubeconfig."),
    ("--as-uid", "UID", "Act as this UID."),
    ("--token", "TOKEN", "Bearer token."),
    ("--certificate-authority", "FILE", "CA of the API server."),
    ("--client-certificate", "FILE", "Client certificate."),
    ("--client-key", "FILE", "Key of the client certificate."),
    ("--tls-server-name", "NAME", "Name in the server's certificate."),
)


class ReaderGone(Exception):
    """Nobody reads what is printed. A BrokenPipeError itself click takes for an error, and ends with 1."""


def kubectl_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """kubectl's flags, collected into an Api. Raises ReaderGone."""

    def call(**given: Any) -> Any:
        flags = {key: given.pop(key) for key in list(given) if key in _KEYS}
        try:
            return function(Api(flags), **given)
        except BrokenPipeError as error:
            raise ReaderGone from error

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__click_params__ = list(getattr(function, "__click_params__", ()))  # type: ignore[attr-defined]
    options = [
        click.option("-n", "--namespace", metavar="NAMESPACE", help="The namespace; default: the context's."),
        click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces."),
        click.option("-l", "--selector", metavar="LABELS", help="Label selector, such as team=a."),
        click.option(
            "--field-selector", metavar="FIELDS", help="Field selector, such as status.phase=Running."
        ),
        click.option(
            "-k", "--kind", metavar="KIND", help="Jobs of one kind, such as TrainJob; default: of all."
        ),
        click.option("-s", "--server", metavar="URL", help="Address of the API server."),
        click.option("--as", "as_user", metavar="USER", help="Act as this user."),
        click.option("--as-group", multiple=True, metavar="GROUP", help="Act as this group."),
        click.option(
            "--insecure-skip-tls-verify", is_flag=True, help="Do not verify the server's certificate."
        ),
        click.option(
            "--request-timeout", metavar="TIME", help="For one request, such as 10s.", callback=_seconds
        ),
        *(click.option(name, metavar=metavar, help=text) for name, metavar, text in _VALUED),
    ]
    found = call
    for option in reversed(options):
        found = option(found)
    return found


def _seconds(_context: click.Context, _option: click.Parameter, value: Optional[str]) -> Optional[float]:
    try:
        return read_duration(value) if value else None
    except UsageError as error:
        raise click.BadParameter(str(error)) from error


_KEYS = {
    *("namespace", "all_namespaces", "selector", "field_selector", "kind", "server", "as_user", "as_group"),
    *("insecure_skip_tls_verify", "request_timeout"),
    *(name.lstrip("-").replace("-", "_") for name, _, _ in _VALUED),
}
