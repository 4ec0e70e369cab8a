"""A sink that answers: the latest document on a port of the training process's own."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from trainjob_progress.document import Snapshot, encode

MAX_CONNECTIONS = 8  # a prober or two and a curious person; the rest is turned away
REQUEST_TIMEOUT_S = 5.0


class HTTPSink:
    """Serves the latest document as JSON on `port`, whatever path is asked for; port 0 takes a free one."""

    interval_s = 0.5

    def __init__(self, port: int, address: str = "") -> None:
        server = _servers.get((address, port))
        if server is None:
            server = _Server(port, address)
            threading.Thread(
                target=server.serve_forever, args=(60,), name="progress endpoint", daemon=True
            ).start()
            if port:  # the next run in this process takes over: the port stays taken
                _servers[address, port] = server
        self._server = server
        self.port: int = server.server_address[1]

    def write(self, snapshot: Snapshot) -> None:
        self._server.document = encode(snapshot)

    def close(self) -> None:
        """Stays open: the last document is there to be read until the process has ended."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, port: int, address: str) -> None:
        self.document = b""
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        # All addresses, of both families where the node has both: a pod may have an IPv6 address only.
        if not address:
            self.address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        super().__init__((address, port), _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # a restart comes back within seconds
        self.socket.bind(self.server_address)  # not HTTPServer's: that looks its own name up, and may hang
        self.server_address = self.socket.getsockname()

    def verify_request(self, *_: object) -> bool:
        return self._free.acquire(blocking=False)

    def process_request_thread(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, *_: object) -> None:
        """A client that goes away is no news for the training log."""


_servers: dict[tuple[str, int], _Server] = {}


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT_S
    server: _Server

    def do_GET(self) -> None:
        document = self.server.document
        if not document:
            self.send_error(503, "nothing reported yet")
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(document)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(document)

    do_HEAD = do_GET

    def version_string(self) -> str:
        return "trainjob_progress"

    def log_message(self, *_: object) -> None:
        """Probes are not logged."""
