"""A receiver of OpenTelemetry's OTLP over HTTP: it keeps the spans and metrics sent to it."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


def values(attributes: Any) -> dict[str, Any]:
    """Return attributes of OTLP by name."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


class OtlpReceiver:
    """`hangs`: it takes requests and never answers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Span] = []
        self.points: dict[str, list[tuple[dict[str, Any], Any]]] = {}
        self.services: set[str] = set()
        self.hangs = False

    def wait(self, what: Callable[[], object], patience_s: float = 180) -> None:
        """Return once `what` is true."""
        deadline = time.monotonic() + patience_s
        while not what():
            assert time.monotonic() < deadline, [span.name for span in self.spans]
            time.sleep(0.02)

    def named(self, name: str) -> list[Span]:
        """Return the spans of this name, in the order of their start."""
        found = [span for span in self.spans if span.name == name]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def below(self, parent: Span) -> list[Span]:
        """Return a span's children, in the order of their start."""
        found = [span for span in self.spans if span.parent_span_id == parent.span_id]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def take(self, path: str, body: bytes) -> None:
        """Keep what a request brings."""
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.services.add(values(resource.resource.attributes)["service.name"])
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
            return
        assert path == "/v1/metrics"
        for found in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            self.services.add(values(found.resource.attributes)["service.name"])
            for metric in (one for scope in found.scope_metrics for one in scope.metrics):
                points = getattr(metric, metric.WhichOneof("data")).data_points
                self.points[metric.name] = [(values(one.attributes), one) for one in points]


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if receiver.hangs:
                over.wait()
                return
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.take(self.path, body)
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = OtlpReceiver(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield receiver
    finally:
        over.set()
        server.shutdown()
        server.server_close()
