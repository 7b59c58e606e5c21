"""Is a topic stuck, and who is in the way? Told from two looks at it, a moment apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ringmain._cli.machine_checks import Finding
from ringmain._cli.text_format import bytes_text
from ringmain._inspect import Participant, TopicInfo
from ringmain.frames._streams import FrameStream

_STATES = {"T": "stopped", "t": "being debugged", "D": "stuck in the kernel", "Z": "a zombie"}


def diagnose(before: TopicInfo, now: TopicInfo, seconds: float, stream: FrameStream | None = None) -> Iterator[Finding]:
    """What is to be said of a topic. The first finding is the verdict."""
    passed = now.next_sequence - before.next_sequence if now.epoch == before.epoch else now.next_sequence
    # One that waits looks up now and then, so that a look may find it awake: nothing passed, and either look will do.
    waiting = {(w.pid, w.joined_ns): w for w in (*before.writers, *now.writers) if w.waits_for}
    blocked = [w for key, w in waiting.items() if any(n.alive and (n.pid, n.joined_ns) == key for n in now.writers)]
    if blocked and passed == 0:
        yield from _stuck(now, blocked)
    elif stream and passed == 0 and sum(stream.held.values()) >= stream.buffers:
        yield from _all_held(now, stream)
    elif passed:
        yield Finding("moving", "ok", f"{passed} messages in {seconds:g} s")
    elif not any(w.alive for w in now.writers):
        yield Finding("idle", "note", "nobody writes", "start a publisher; ringmain pub sends by hand")
    else:
        names = ", ".join(_who(w) for w in now.writers if w.alive)
        yield Finding("idle", "ok", f"nobody waits: {names} sent nothing in {seconds:g} s")
        yield from (_not_running(w) for w in now.writers if w.alive and _state(w.pid))
    yield from _members(before, now)


def _stuck(topic: TopicInfo, blocked: list[Participant]) -> Iterator[Finding]:
    for writer in blocked:
        obstacle = next((r for r in (*topic.readers, *topic.writers) if r.name == writer.waits_for), None)
        if obstacle is None:
            text = f"{_who(writer)} waits for {writer.waits_for}"
            remedy = "start its reader: a pipe keeps what it holds until it is read"
        else:
            text = f"{_who(writer)} waits for {_who(obstacle)}, {obstacle.lag_messages} messages behind"
            state = _state(obstacle.pid)
            remedy = f"end it (kill {obstacle.pid}), or make it read faster"
            if state == "stopped":
                text += ", which is stopped"
                remedy = f"let it go on (kill -CONT {obstacle.pid}), or end it (kill -9 {obstacle.pid})"
            elif state:
                text += f", which is {state}"
            if not obstacle.alive:
                remedy = "it is dead, and will be cleared away within a moment by whoever waits"
        yield Finding("stuck", "bad", text, remedy)


def _all_held(topic: TopicInfo, stream: FrameStream) -> Iterator[Finding]:
    """No buffer is free: the next frame waits, or is dropped."""
    holders = ", ".join(f"{who} has {count}" for who, count in stream.held.items())
    text = f"no buffer is free for the next frame: of {stream.buffers}, {holders}"
    remedy = "let frames go sooner (leave the block, drop the arrays), give it more buffers, or when_full='drop'"
    yield Finding("stuck", "bad", text, remedy)
    yield from (_not_running(reader) for reader in topic.readers if reader.alive and _state(reader.pid))


def _not_running(member: Participant) -> Finding:
    remedy = f"kill -CONT {member.pid}" if _state(member.pid) == "stopped" else ""
    return Finding("not running", "bad", f"{_who(member)} is {_state(member.pid)}", remedy)


def _members(before: TopicInfo, now: TopicInfo) -> Iterator[Finding]:
    if not any(r.alive for r in now.readers):
        yield Finding("readers", "note", "nobody reads")
    for member in (*now.writers, *now.readers):
        if not member.alive:
            text = f"{_who(member)} died; whoever it is in the way of clears it away"
            yield Finding("dead", "note", text, "ringmain clean, once nobody else is left")
    lost_before = {(r.pid, r.joined_ns): r.lost for r in before.readers}
    for reader in now.readers:
        lost = reader.lost - lost_before.get((reader.pid, reader.joined_ns), 0)
        if lost > 0:
            remedy = "a larger capacity rides out bursts; conflate=True if only the newest counts; or read faster"
            yield Finding("losing", "bad", f"{_who(reader)} lost {lost} messages just now", remedy)
        elif reader.lost:
            yield Finding("lost", "note", f"{_who(reader)} lost {reader.lost} messages since it joined")
        if reader.alive and reader.lag_bytes > now.capacity // 2:
            text = f"{_who(reader)} is {bytes_text(reader.lag_bytes)} behind, of {bytes_text(now.capacity)}"
            yield Finding("slow", "note", text, "it is about to be lapped, or to make the writer wait")
    if now.used * 10 > now.capacity * 9 and now.contract in ("pipe", "reliable"):
        yield Finding("full", "note", f"{bytes_text(now.used)} of {bytes_text(now.capacity)} used", "")


def _who(member: Participant) -> str:
    return f"{member.role} '{member.name}' (pid {member.pid})"


def _state(pid: int) -> str:
    """What keeps a process from running, if anything does; '' also where we cannot see it."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    return _STATES.get(letter, "")
