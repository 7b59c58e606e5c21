"""The command itself: what it imports, how it ends, and that it explains itself. Real processes."""

from __future__ import annotations

import importlib.metadata
import shlex
import subprocess
import sys

import pytest

import ringmain as rm
from ringmain._cli import main
from ringmain._cli.main import COMMANDS, command_parser, load
from tests.cli.conftest import Imu

HEAVY = ("asyncio", "concurrent.futures", "multiprocessing", "numpy", "pandas", "pyarrow", "textual", "rich", "pyspark")
HEAVY += ("zmq", "mcap", "ssl", "email", "http", "logging", "unittest", "importlib.metadata")
SIMPLE = [
    (),
    ("--help",),
    ("list",),
    ("list", "--json"),
    ("info", "here"),
    ("info", "typed", "--json"),
    ("echo", "typed", "--oldest", "--once"),
    ("pub", "here", "x", "--wait-readers=0"),
    ("hz", "here", "--count=1", "--interval=0.01"),
    ("bw", "--count=1", "--interval=0.01"),
    ("doctor", "here", "--interval=0.01"),
    ("clean",),
    ("completion", "bash"),
]


@pytest.mark.parametrize("command", SIMPLE, ids=" ".join)
def test_simple_commands_import_nothing_heavy(command):
    """So they start at once: what they load is counted, not timed."""
    with rm.Publisher("here", contract="bus") as pub, rm.Publisher("typed", type=Imu) as typed:
        pub.send(b"x")
        typed.send(Imu(1, (0, 0, 9.8)))
        script = (
            "import sys; from ringmain._cli import main; main(sys.argv[1:]);"
            f"print('LOADED', *(m for m in {HEAVY} if m in sys.modules), file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1].split() == ["LOADED"]
    assert done.returncode == 0


def test_every_command_explains_itself_with_examples(capsys):
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        text = capsys.readouterr().out
        assert "examples:" in text
        assert f"ringmain {name}" in text


def test_the_command_that_is_installed_is_this_one():
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="ringmain")
    assert command.load() is main


LISTS_NOTHING = {
    "pub",
    "top",
    "view",
    "config",
    "export",
    "query",
    "report",
    "demo",
    "completion",
}  # query has --format json


def test_whatever_lists_something_also_does_so_as_json():
    with_json = {
        name for name in COMMANDS
        if any("--json" in action.option_strings for action in command_parser(name, load(name))._actions)
    }  # fmt: skip
    assert with_json == set(COMMANDS) - LISTS_NOTHING


def test_examples_parse():
    """An example that the parser refuses would teach a mistake."""
    seen = set()
    for name in COMMANDS:
        module = load(name)
        for _what, line in module.EXAMPLES:
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|>()")
            lexer.whitespace_split = True
            words = list(lexer)
            while name in words and words[words.index(name) - 1] == "ringmain":
                words = words[words.index(name) + 1 :]
                end = next((i for i, word in enumerate(words) if word in ("|", ">", "(", ">>")), len(words))
                command_parser(name, module).parse_intermixed_args(words[:end])
                seen.add(name)
    assert seen == set(COMMANDS)


def test_without_a_command_it_lists_them(ringmain):
    ended = ringmain()
    assert ended.code == 2
    assert all(name in ended.err for name in COMMANDS)
    assert ringmain("--help").code == 0
    assert ringmain("--version").out == f"ringmain {rm.__version__}\n"


def test_an_unknown_command_is_one_sentence_with_a_hint(ringmain):
    ended = ringmain("ecko")
    assert ended.code == 2
    assert ended.err == "ringmain: there is no command 'ecko'; did you mean 'echo'?\n"


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (("info", "nothing/here"), 3, "there is no topic 'nothing/here'"),
        (("info", "not a name"), 2, "is not a topic's name"),
        (("echo", "t", "--count", "none"), 2, "a whole number above 0"),
        (("echo", "t", "--timeout", "0.01", "--once"), 4, "'t'"),
        (("pub", "t"), 2, "give the message"),
        (("pub", "t", "x", "--timeout", "0.05"), 4, "nothing was sent"),
        (("clean", "--force"), 2, "needs the topic's name"),
        (("clean", "no/such"), 3, "no/such"),
        (("hz", "no/such"), 3, "no/such"),
        (("doctor", "no/such"), 3, "no/such"),
        (("play", "/no/such"), 3, "/no/such"),
        (("export", "/no/such", "x.jsonl"), 3, "/no/such"),
        (("export", "/no/such", "x.docx"), 2, ".mcap"),
        (("report", "/no/such"), 1, "run the pipeline first"),
        (("pipeline", "run", "/no/such", "--lake", "/tmp/never"), 3, "/no/such"),
        (("bridge", "a", "pigeon:b"), 2, "pigeon:b"),
        (("bridge", "a", "zmq:b@tcp://*:5555"), 1, "--insecure"),
        (("bridge", "a", "zmq:b@tcp://*:5555", "--keys", "/no/such"), 1, "keys=/no/such"),
        (("bridge", "zmq:b@tcp://h:5555", "a", "--server-key", "/no/such"), 1, "server_key=/no/such"),
        (("bridge", "a", "zmq:b@5555"), 1, "tcp://host:port"),
        (("bridge", "a", "b", "--insecure"), 2, "an end with an address"),
        (("record", "-o", "/proc/no/such", "--quiet"), 1, "/proc/no/such"),
        (("completion", "tcsh"), 2, "tcsh"),
        (("demo", "--out", "/proc/no/such", "--no-spark"), 1, "/proc/no/such"),
        (("pub", "t", "x", "--capacity", "much"), 2, "is not understood"),
    ],
)
def test_errors_are_one_sentence_and_a_code(ringmain, command, code, words):
    ended = ringmain(*command)
    assert ended.code == code
    assert words in ended.err
    assert ended.err.startswith(f"ringmain {command[0]}: ")
    assert ended.err.count("\n") == 1


def test_sigterm_closes_what_is_open(started, until):
    """A command that is told to end leaves its place in the topic, at once and not when somebody finds it dead."""
    with rm.Publisher("t", contract="reliable") as pub:
        process = started("echo", "t")
        until(lambda: rm.info("t").readers)
        process.terminate()
        assert process.wait(timeout=60) == 143
        assert rm.info("t").readers == []
        pub.send(b"goes through", timeout=0)


def test_broken_pipe_is_silent(started, until):
    with rm.Publisher("t") as pub:
        process = started("echo", "t")
        until(lambda: rm.info("t").readers)
        process.stdout.close()
        pub.send(b"to nobody")
        assert process.wait(timeout=60) == 141
        assert process.stderr.read() == ""
        process.stdout = None
