"""`ringmain call`: sends a request to a service, and prints the reply."""

from __future__ import annotations

import argparse
import json
import sys

import ringmain as rm
from ringmain._cli.arguments import add_timeout
from ringmain._cli.exit_codes import CommandError, Exit
from ringmain._cli.message_input import Encoder
from ringmain._cli.message_text import Decoder, value_lines
from ringmain._cli.missing_topic import did_you_mean

EXAMPLES = [
    ("JSON, if the service is typed", "ringmain call infer '{\"x\": 1.5}'"),
    ("text, if it is not; at most two seconds", "ringmain call echo hello --timeout 2"),
    ("one field of the reply, in a script", "ringmain call infer '{\"x\": 1.5}' --json | jq .y"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("service", help="the service's name")
    parser.add_argument("request", help="the request: text, or JSON if the service is typed")
    parser.add_argument("--hex", action="store_true", help="the request is the payload in hex")
    parser.add_argument("--retry", action="store_true", help="if its server dies, another may run it a second time")
    parser.add_argument("--json", action="store_true", help="print the reply as one line of JSON")
    add_timeout(parser, "give up (exit code 4) after S seconds without a reply (default: 10)")


def run(args: argparse.Namespace) -> int:
    timeout = 10.0 if args.timeout is None else args.timeout
    try:
        has_server = rm.service(args.service).servers != []
    except rm.TopicNotFound as error:
        similar = did_you_mean(args.service, [known.name for known in rm.services()])
        raise CommandError(f"{error}{similar}", Exit.NOT_FOUND) from None
    if not has_server:
        raise CommandError(f"service '{args.service}' has no server", Exit.NOT_FOUND)
    payload = Encoder(rm.info(args.service).schema, as_hex=args.hex).encode(args.request)
    with rm.Client(args.service, name="ringmain call", reply_capacity="16MiB") as client:
        try:
            reply = client.call(payload, timeout, args.retry)
        except (rm.RequestFailed, rm.ServerGone) as error:
            raise CommandError(str(error)) from None
        except rm.Timeout as error:
            raise CommandError(str(error), Exit.TIMEOUT) from None
        value = Decoder(client.reply_schema).plain(reply)
    if args.json:
        print(json.dumps(value.decode(errors="replace") if isinstance(value, bytes) else value, ensure_ascii=False))
    elif isinstance(value, bytes):
        sys.stdout.buffer.write(value + b"\n")
    else:
        print("\n".join(value_lines(value)))
    return Exit.OK
