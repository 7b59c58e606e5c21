"""`ringmain view`: plots, pictures and events of topics in the browser."""

from __future__ import annotations

import argparse
import fnmatch
import ipaddress
import math
import os
import signal
import sys
import threading
import webbrowser
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from ringmain import _names, _native
from ringmain._cli.arguments import add_incident, add_moments, add_storage_option, moment, natural, rate
from ringmain._cli.exit_codes import CommandError, Exit, UsageError, needs
from ringmain._cli.message_input import Encoder
from ringmain._cli.message_text import Decoder
from ringmain._cli.missing_topic import no_topic
from ringmain._cli.warning_text import show_warnings

if TYPE_CHECKING:
    from ringmain.recording import Damage
    from ringmain.typed import Schema
    from ringmain.view._counts import Counts
    from ringmain.view._foxglove import FoxgloveServer
    from ringmain.view._foxglove_playback import FoxglovePlayback
    from ringmain.view._of_lake import LakeTopics
    from ringmain.view._recorded import RecordedTopics

EXAMPLES = [
    ("everything there is, in the browser", "ringmain view"),
    ("some topics, by name or pattern", "ringmain view imu 'camera/*'"),
    ("a part of a recording, to be played and searched", "ringmain view drive --from 10 --to 20"),
    ("what a flight recorder kept", "ringmain view flight --incident braking"),
    ("topics of a lake, of one robot", "ringmain view lake imu --host robot-07"),
    ("a file for Rerun's own program", "ringmain view drive 'camera/*' --save drive.rrd"),
    (
        "for Foxglove and Lichtblick; what they send goes to one topic",
        "ringmain view --foxglove --allow-publish command",
    ),
    ("a recording, which the viewer plays and searches", "ringmain view drive --foxglove"),
    ("on a machine without a browser: prints the address", "ringmain view --no-browser --port 9100"),
]
_OPTIONS = {"since": "from", "until": "to", "points_hz": "points-hz"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="*", help="a recording or a lake, if it is one (a directory or URI); names or patterns of topics"
    )
    parser.add_argument(
        "--hz", type=_rate, metavar="HZ", help="pictures a second (default: 10; of what is stored inf, all of them)"
    )
    parser.add_argument(
        "--points-hz", type=_rate, metavar="HZ",
        help="points a second of each plotted number, of which the least and the greatest of each moment stay "
        "(default: 200; of what is stored inf)",
    )  # fmt: skip
    parser.add_argument("--raw", action="store_true", help="send pictures as pixels, instead of as JPEG")
    parser.add_argument("--blueprint", type=Path, metavar="FILE", help="a layout saved in the viewer (.rbl)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, and open no browser")
    parser.add_argument(
        "--port", type=natural, metavar="N",
        help="of the page; its data comes from the port after it (default: 9090; with --foxglove 8765; 0: any)",
    )  # fmt: skip
    parser.add_argument("--address", default="127.0.0.1", help="to listen on (default: 127.0.0.1, this machine only)")
    parser.add_argument(
        "--foxglove", action="store_true",
        help="serve topics, or a recording, by Foxglove's WebSocket protocol, for viewers that speak it, not as a page",
    )  # fmt: skip
    parser.add_argument(
        "--allow-publish", action="append", metavar="TOPIC",
        help="with --foxglove: a topic, or a pattern, that viewers may publish to; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--allow-call", action="append", metavar="SERVICE",
        help="with --foxglove: a service, or a pattern, that viewers may call; may be given several times",
    )  # fmt: skip
    add_moments(parser)
    add_incident(parser)
    parser.add_argument("--host", help="of a lake: the one whose topics are shown (default: all, as HOST/TOPIC)")
    add_storage_option(parser)
    parser.add_argument("--speed", type=rate, metavar="X", help="how fast the page plays what is stored (default: 1)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write a file for Rerun's own program (.rrd)")


def run(args: argparse.Namespace) -> int:
    os.environ.setdefault("RUST_LOG", "off")  # Rerun's own words; what goes wrong is said here
    _check_address(args.address)
    if args.foxglove:
        return _foxglove(args)
    for option in ("allow-publish", "allow-call"):
        if getattr(args, option.replace("-", "_")):
            raise UsageError(f"--{option} is for --foxglove: Rerun's page sends nothing")
    if args.blueprint is not None and not args.blueprint.exists():
        raise CommandError(f"there is no layout {args.blueprint}", Exit.NOT_FOUND)
    with needs("view"):
        import rerun as rr

        from ringmain.view import _session as session
        from ringmain.view._live import LIVE_HZ, LIVE_POINTS_HZ, LiveTopics
        from ringmain.view._rerun import APPLICATION, RerunSink
        from ringmain.view._rerun_server import RerunServer
    show_warnings("view")
    stop = _stopped_by_ctrl_c()
    stored, damage = _stored(args)
    if stored is None:
        _check_topics(args.what)
    live = LiveTopics(args.what, hz=args.hz or LIVE_HZ, points_hz=args.points_hz or LIVE_POINTS_HZ)
    source = live if stored is None else stored
    stream = rr.RecordingStream(APPLICATION)
    sink = RerunSink(
        stream, jpeg=not args.raw, layout=args.blueprint is None, live=stored is None, speed=args.speed or 1.0
    )
    with closing(live), ExitStack() as server_first:
        if args.save is not None:
            stream.save(args.save)
            check, address = _nothing, ""
        else:
            server = server_first.enter_context(RerunServer(args.address, 9090 if args.port is None else args.port))
            stream.connect_grpc(server.data_url)
            check, address = server.check, server.page_url
        with sink:
            if args.blueprint is not None:
                stream.log_file_from_path(args.blueprint)
            if address:
                _announce(address, args)
            (session.follow if stored is None else session.show_all)(source, sink, stop, check)
            if stored is not None and address:
                session.wait(stop, check)
    if args.save is not None:
        print(f"{sum(each.messages for each in source.counts.values())} messages: {args.save}")
    _say_what_was_left_out(source.counts)
    for part in damage:
        print(f"ringmain view: left out, as it is damaged: {part}", file=sys.stderr)
    return Exit.INTERRUPTED if args.save is not None and stop.is_set() else Exit.OK


def _foxglove(args: argparse.Namespace) -> int:
    for option in ("raw", "blueprint", "points_hz", "save", "host"):
        if getattr(args, option):
            raise UsageError(f"--{_OPTIONS.get(option, option)} is for Rerun's page, not for --foxglove")
    port = 8765 if args.port is None else args.port
    if _names_stored(args):
        return _foxglove_playback(args, port)
    with needs("view"):
        from ringmain.view._foxglove import FoxgloveServer
    show_warnings("view")
    stop = _stopped_by_ctrl_c()
    _check_topics(args.what)
    with closing(
        FoxgloveServer(
            args.what,
            args.address,
            port,
            hz=args.hz or 10.0,
            allow_publish=args.allow_publish or (),
            allow_call=args.allow_call or (),
            encode=_payload,
            decode=_reply,
        )
    ) as server:
        _serve(server, stop)
    return Exit.OK


def _serve(server: FoxgloveServer | FoxglovePlayback, stop: threading.Event) -> None:
    print("ringmain view: for a viewer that opens WebSocket connections; Ctrl-C ends it", file=sys.stderr, flush=True)
    print(server.url, flush=True)
    server.run(stop)
    _say_what_was_left_out(server.counts)


def _foxglove_playback(args: argparse.Namespace, port: int) -> int:
    for option in ("allow_publish", "allow_call", "hz"):
        if getattr(args, option):
            raise UsageError(f"--{option.replace('_', '-')} is for live topics, not for a recording")
    with needs("view"):
        from ringmain.recording import Recording
        from ringmain.view._foxglove_playback import FoxglovePlayback
        from ringmain.view._stored import check_there, open_stored
    opened = open_stored(args.what[0], dict(args.storage_option), incident=args.incident, skip_damage=True)
    if not isinstance(opened, Recording):
        raise UsageError("--foxglove is for live topics and recordings: a lake is shown by Rerun's page")
    if args.what[1:]:
        check_there(args.what[1:], opened.topics(), opened.store.shown)
    show_warnings("view")
    stop = _stopped_by_ctrl_c()
    since, until = moment("--from", args.since, opened), moment("--to", args.until, opened)
    playback = FoxglovePlayback(
        opened, args.what[1:] or None, args.address, port, since=since, until=until, speed=args.speed or 1.0
    )
    with closing(playback):
        _serve(playback, stop)
    for part in opened.damage:
        print(f"ringmain view: left out, as it is damaged: {part}", file=sys.stderr)
    return Exit.OK


def _payload(schema: Schema | None, data: bytes) -> bytes:
    return Encoder(schema).encode(data.decode())


def _reply(schema: Schema | None, data: bytes) -> bytes:
    return msgspec.json.encode(Decoder(schema).plain(data), enc_hook=str)


def _nothing() -> None:
    pass


def _stored(args: argparse.Namespace) -> tuple[RecordedTopics | LakeTopics | None, list[Damage]]:
    """The recording or lake that the first argument names, if it names one, and its damage once it has been shown."""
    if not _names_stored(args):
        return None, []
    first = args.what[0]
    from ringmain.recording import Recording
    from ringmain.view._recorded import RecordedTopics
    from ringmain.view._stored import narrow, open_stored, stored_topics

    with needs("lake"):
        opened = open_stored(first, dict(args.storage_option), incident=args.incident, skip_damage=True)
    source = stored_topics(
        opened, args.what[1:] or None, host=args.host, hz=args.hz or math.inf, points_hz=args.points_hz or math.inf
    )
    source.since, source.until = moment("--from", args.since, source), moment("--to", args.until, source)
    if args.incident is not None and not isinstance(source, RecordedTopics):
        narrow(source, args.incident)
    return source, opened.damage if isinstance(opened, Recording) else []


def _names_stored(args: argparse.Namespace) -> bool:
    """Is the first argument a recording or a lake? Raises where only such have an option that is given."""
    first = args.what[0] if args.what else ""
    if "://" in first or (first and Path(first).is_dir()):
        return True
    for option in ("incident", "host", "since", "until", "speed", "save"):
        if getattr(args, option) is not None:
            raise UsageError(f"--{_OPTIONS.get(option, option)} is for a recording or a lake: name its directory first")
    return False


def _rate(text: str) -> float:
    return math.inf if text == "inf" else rate(text)


def _check_address(address: str) -> None:
    try:
        there = ipaddress.ip_address(address)
    except ValueError:
        raise UsageError(f"--address is an IP address like 127.0.0.1, not {address!r}") from None
    if not there.is_loopback:
        print(
            f"ringmain view: {address} is reached from other machines, and all who reach it see every message shown",
            file=sys.stderr,
        )


def _check_topics(patterns: list[str]) -> None:
    """A name must be there, a pattern may match later."""
    there = _native.topics(_names.runtime_directory())
    for pattern in patterns:
        if fnmatch.filter(there, pattern):
            continue
        if not any(sign in pattern for sign in "*?["):
            raise no_topic(pattern)
        print(f"ringmain view: no topic matches '{pattern}' yet", file=sys.stderr)


def _stopped_by_ctrl_c() -> threading.Event:
    """So that a round that has begun is counted. The second Ctrl-C interrupts whatever is being done."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop.set()

    signal.signal(signal.SIGINT, handle)
    return stop


def _announce(url: str, args: argparse.Namespace) -> None:
    has_screen = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    shown = args.no_browser or (has_screen and webbrowser.open(url))
    why = "" if shown else "no browser is here to open this page with; "
    print(f"ringmain view: {why}Ctrl-C ends it", file=sys.stderr, flush=True)
    print(url, flush=True)


def _say_what_was_left_out(counts: Mapping[str, Counts]) -> None:
    from ringmain.view._counts import sentence

    if left_out := sentence(counts):
        print(f"ringmain view: left out: {left_out}", file=sys.stderr)
