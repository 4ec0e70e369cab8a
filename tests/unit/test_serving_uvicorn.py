"""The parts of uvicorn that serving/ builds on, and the versions of it that are accepted (decision 0009)."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from visibility_api.serving import REQUIREMENT, UntestedUvicorn, require_tested_uvicorn
from visibility_api.serving.connection import TlsConnection
from visibility_api.serving.http_server import HttpServer
from visibility_api.serving.writer import Response

ROOT = Path(__file__).parents[2]
CLASSES = {
    cls.__name__: cls for cls in (HttpToolsProtocol, RequestResponseCycle, FlowControl, uvicorn.Server)
}
SUBCLASSES = (
    (TlsConnection, HttpToolsProtocol),
    (HttpServer, uvicorn.Server),
    (Response, RequestResponseCycle),
)
# SHA-256 of the source, the first twelve digits; several where tested versions differ. Before adding one read
# what changed: what an overridden method newly does must be done, or left out on purpose, in the subclass.
SOURCES = {
    "HttpToolsProtocol.__init__": ["4f0899941034"],
    "HttpToolsProtocol.connection_made": ["6efb565ff3d3"],
    "HttpToolsProtocol.connection_lost": ["c91a4c9bf2e2"],
    "HttpToolsProtocol.eof_received": ["5652627579a0"],
    "HttpToolsProtocol._unset_keepalive_if_required": ["00a6a4e47214"],
    "HttpToolsProtocol._unsupported_upgrade_warning": ["55bbd2762b18"],
    "HttpToolsProtocol._should_upgrade": ["8fcad1ab8e09"],
    "HttpToolsProtocol._should_upgrade_to_ws": ["d580849b4df8"],
    "HttpToolsProtocol.data_received": ["010a7ae59a5d"],
    "HttpToolsProtocol.send_400_response": ["ae5a4a3782b6"],
    "HttpToolsProtocol.on_message_begin": ["96d377fdc7c2"],
    "HttpToolsProtocol.on_url": ["37be44e962b0"],
    "HttpToolsProtocol.on_header": ["65d62c044f61"],
    # 0.53: a `connection: close` of the request is read by the parser instead of from the headers.
    "HttpToolsProtocol.on_headers_complete": ["9637d971fa9f", "1ea8589acfad"],
    "HttpToolsProtocol._start_asgi_task": ["9c08c2571ae9"],
    "HttpToolsProtocol.on_body": ["dba9c32aeba3"],
    "HttpToolsProtocol.on_message_complete": ["1fbad42dc31f"],
    "HttpToolsProtocol.on_response_complete": ["64e254f28e38"],
    "HttpToolsProtocol.shutdown": ["d7351fa33f00"],
    "HttpToolsProtocol.pause_writing": ["17a8fd215d96"],
    "HttpToolsProtocol.resume_writing": ["7844bbaa8cce"],
    "HttpToolsProtocol.timeout_keep_alive_handler": ["8b53bf5f2e20"],
    "RequestResponseCycle.__init__": ["4d2f220910c3"],
    "RequestResponseCycle.run_asgi": ["0f33f2449a44"],
    "RequestResponseCycle.send_500_response": ["37c64da40eed"],
    "RequestResponseCycle.send": ["5fc394f28e87", "abdd8601b326"],  # the same change in 0.53
    "RequestResponseCycle.receive": ["8124ae006be7"],
    "FlowControl.__init__": ["0152d94a0407"],
    "FlowControl.drain": ["4bda6b61c277"],
    "FlowControl.pause_reading": ["7c27388bb984"],
    "FlowControl.resume_reading": ["a0429d30857e"],
    "FlowControl.pause_writing": ["93d4a08a9f2d"],
    "FlowControl.resume_writing": ["a343e8b0baf0"],
    "Server.serve": ["112ef41af521"],
    "Server.startup": ["2aa1d70a244b"],
    "Server.on_tick": ["60ea49b06ccf"],
    "Server.shutdown": ["9b33c5056299"],
    "Server._wait_tasks_to_complete": ["17209be1e991"],
    "Server.capture_signals": ["e1bbcd4770d1"],
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_what_serving_overrides_or_calls_is_as_it_was_read(name: str) -> None:
    owner, method = name.split(".")
    source = inspect.getsource(inspect.unwrap(vars(CLASSES[owner])[method]))
    assert hashlib.sha256(source.encode()).hexdigest()[:12] in SOURCES[name], (
        f"{name} changed in uvicorn {uvicorn.__version__}: read docs/decisions/0009-the-uvicorn-seam.md"
    )


@pytest.mark.parametrize(("ours", "theirs"), SUBCLASSES, ids=lambda cls: cls.__name__)
def test_every_method_that_is_overridden_exists_and_is_pinned(ours: type, theirs: type) -> None:
    overridden = [
        name
        for name, member in vars(ours).items()
        if inspect.isfunction(member) and hasattr(theirs, name) and name != "__init__"
    ]
    assert overridden
    for name in overridden:
        assert f"{theirs.__name__}.{name}" in SOURCES
        assert list(inspect.signature(getattr(ours, name)).parameters) == list(
            inspect.signature(getattr(theirs, name)).parameters
        )


def test_the_package_requires_the_versions_that_are_tested() -> None:
    assert f'"{REQUIREMENT}"' in (ROOT / "pyproject.toml").read_text()
    require_tested_uvicorn()


@pytest.mark.parametrize("version", ["0.50.0", "0.54.9", "0.54", "0.51.0.post1"])
def test_a_tested_version_is_accepted(version: str) -> None:
    require_tested_uvicorn(version)


@pytest.mark.parametrize("version", ["0.49.0", "0.55.0", "0.55.0.dev1", "1.52.0", "1", "", "unknown"])
def test_any_other_version_is_refused_with_what_to_install(version: str) -> None:
    with pytest.raises(UntestedUvicorn, match=r"pip install 'uvicorn>=0\.50,<0\.55'"):
        require_tested_uvicorn(version)
