"""`ringmain metrics`: serves figures of topics and recordings to Prometheus."""

from __future__ import annotations

import argparse
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ringmain._cli.arguments import natural
from ringmain._cli.exit_codes import needs
from ringmain._cli.topic_summary import dump_json
from ringmain._metrics import Collector, metrics

EXAMPLES = [
    ("at http://127.0.0.1:9464/metrics, until Ctrl-C", "ringmain metrics --port 9464"),
    ("with a recording, and the lake of a pipeline", "ringmain metrics --recording drive --lake lake"),
    ("once, to a file or another program", "ringmain metrics --once"),
]
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=natural, default=9464, help="the port (default: 9464; 0: a free one)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to bind to (default: 127.0.0.1, this machine)")
    parser.add_argument("--recording", action="append", default=[], metavar="DIR", help="a recording to report too")
    parser.add_argument("--lake", action="append", default=[], metavar="DIR", help="a pipeline's lake to report too")
    parser.add_argument("--once", action="store_true", help="print the metrics and exit")
    parser.add_argument("--json", action="store_true", help="print them as a JSON object, as `rm.metrics()` gives them")


def run(args: argparse.Namespace) -> None:
    if args.recording:
        with needs("record"):
            import ringmain.recording
    if args.lake:
        with needs("lake"):
            import ringmain.lake  # noqa: F401
    if args.json:
        print(dump_json(metrics(args.recording, args.lake)))
    elif args.once:
        sys.stdout.write(Collector(args.recording, args.lake).text())
    else:
        serve(args.host, args.port, Collector(args.recording, args.lake))


def serve(host: str, port: int, collector: Collector) -> None:
    """Answers requests until Ctrl-C."""
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # a client that sends nothing does not keep its thread

        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in ("/", "/metrics"):
                self.send_error(404, "the metrics are at /metrics")
                return
            with one_at_a_time:
                body = collector.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", _TEXT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A line for each scrape tells nothing."""

    with suppress(KeyboardInterrupt), ThreadingHTTPServer((host, port), Handler) as server:
        print(f"ringmain metrics: http://{host}:{server.server_port}/metrics", file=sys.stderr, flush=True)
        server.serve_forever()
