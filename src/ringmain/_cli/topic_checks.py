"""Why is a topic stuck? Compares two observations of it, a moment apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ringmain._cli.machine_checks import Finding
from ringmain._cli.text_format import bytes_text, duration_text
from ringmain._cli.topic_summary import oldest_task
from ringmain._contracts import CONTRACTS
from ringmain._inspect import Participant, TopicInfo
from ringmain.frames import FrameTopic

_STATES = {"T": "stopped", "t": "being debugged", "D": "stuck in the kernel", "Z": "a zombie"}


def diagnose(before: TopicInfo, now: TopicInfo, seconds: float, frames: FrameTopic | None = None) -> Iterator[Finding]:
    """The findings about a topic. The first one says whether it moves."""
    passed = now.next_sequence - before.next_sequence if now.epoch == before.epoch else now.next_sequence
    # A waiting writer wakes up now and then, so one observation may miss that it waits. If no message passed between
    # the two, either of them is proof.
    waiting = {_key(w): w for w in (*before.writers, *now.writers) if w.waits_for}
    alive = [w for w in now.writers if w.alive]
    blocked = [w for key, w in waiting.items() if any(_key(n) == key for n in alive)]
    if blocked and passed == 0:
        yield from (_stuck(now, writer) for writer in blocked)
    elif frames and passed == 0 and sum(frames.held.values()) >= frames.buffers:
        yield from _all_held(now, frames)
    elif passed:
        yield Finding("moving", "ok", f"{passed} messages in {seconds:g} s")
    elif not alive:
        yield Finding("idle", "note", "no live writer", "start a publisher, or send with ringmain pub")
    else:
        yield Finding("idle", "ok", f"no writer waits: {', '.join(map(_who, alive))} sent nothing in {seconds:g} s")
        yield from _not_running(alive)
    yield from _participants(before, now)


def _stuck(topic: TopicInfo, writer: Participant) -> Finding:
    obstacle = next((r for r in (*topic.readers, *topic.writers) if r.name == writer.waits_for), None)
    if obstacle is None:
        remedy = f"start its reader: a {topic.contract} topic keeps unread messages until they are read"
        return Finding("stuck", "bad", f"{_who(writer)} waits for {writer.waits_for}", remedy)
    how = f"{obstacle.lag_messages} messages behind" if topic.waiting is None else _since(obstacle)
    text = f"{_who(writer)} waits for {_who(obstacle)}, {how}"
    state = _state(obstacle)
    remedy = f"end it (kill {obstacle.pid}), or make it read faster"
    if not obstacle.alive:
        remedy = "it is dead: the waiting writer removes it within a moment"
    elif not obstacle.same_namespace:
        remedy = "end it in its own container, or make it read faster"
    elif state == "stopped":
        remedy = f"continue it (kill -CONT {obstacle.pid}), or end it (kill -9 {obstacle.pid})"
    return Finding("stuck", "bad", f"{text}, which is {state}" if state else text, remedy)


def _all_held(topic: TopicInfo, frames: FrameTopic) -> Iterator[Finding]:
    """No buffer is free: the next frame waits, or is dropped."""
    holders = ", ".join(f"{who} has {count}" for who, count in frames.held.items())
    text = f"no buffer is free for the next frame: of {frames.buffers}, {holders}"
    remedy = "release frames sooner (leave the block, drop the arrays), use more buffers, or when_full='drop'"
    yield Finding("stuck", "bad", text, remedy)
    yield from _not_running(reader for reader in topic.readers if reader.alive)


def _not_running(participants: Iterable[Participant]) -> Iterator[Finding]:
    for each in participants:
        if state := _state(each):
            remedy = f"kill -CONT {each.pid}" if state == "stopped" else ""
            yield Finding("not running", "bad", f"{_who(each)} is {state}", remedy)


def _participants(before: TopicInfo, now: TopicInfo) -> Iterator[Finding]:
    if not any(reader.alive for reader in now.readers):
        yield Finding("readers", "note", "no live reader")
    for each in (*now.writers, *now.readers):
        if not each.alive:
            text = f"{_who(each)} died; the next participant that it blocks removes it"
            yield Finding("dead", "note", text, "ringmain clean, once there is no other participant")
    if now.waiting is not None:
        yield from _work(before, now)
    if now.not_kept:
        text = f"{now.not_kept} messages were dropped and not kept: the topic has {now.max_kept_kinds} kinds already"
        yield Finding("kinds", "bad", text, "create it with a larger keep_last_per_kind")
    lost_before = {_key(r): r.lost for r in before.readers}
    for reader in now.readers:
        lost = reader.lost - lost_before.get(_key(reader), 0)
        if lost > 0:
            remedy = "read faster; a larger capacity absorbs bursts; conflate=True if only the newest message matters"
            yield Finding("losing", "bad", f"{_who(reader)} lost {lost} messages just now", remedy)
        elif reader.lost:
            yield Finding("lost", "note", f"{_who(reader)} lost {reader.lost} messages since it joined")
        if reader.alive and reader.lag_bytes > now.capacity // 2:
            text = f"{_who(reader)} is {bytes_text(reader.lag_bytes)} behind, of {bytes_text(now.capacity)}"
            yield Finding("slow", "note", text, "it is about to be lapped, or to make the writer wait")
    if now.used * 10 > now.capacity * 9 and CONTRACTS[now.contract].writer_waits:
        yield Finding("full", "note", f"{bytes_text(now.used)} of {bytes_text(now.capacity)} used", "")


def _work(before: TopicInfo, now: TopicInfo) -> Iterator[Finding]:
    taken = sum(reader.taken for reader in now.readers)
    yield Finding("work", "ok", f"{now.waiting} messages wait for a worker, {taken} are taken")
    worker = oldest_task(now)
    same = worker and any(_key(r) == _key(worker) and r.taken_ns == worker.taken_ns for r in before.readers)
    if worker and same:  # in both observations
        remedy = "what came after it stays in the ring until it is done; a larger capacity lets the others go on"
        yield Finding("oldest task", "note", f"{_who(worker)}, {_since(worker)}", remedy)
    for each in now.readers:
        if each.redelivered:
            text = f"{_who(each)} was given {each.redelivered} messages that another worker had given back"
            yield Finding("redelivered", "note", text, "max_deliveries= moves those that fail each time to a topic")


def _since(worker: Participant) -> str:
    """For how long a worker has had its oldest message."""
    if not worker.taken_ns:
        return f"which has {worker.taken} messages"
    return f"which has had a message for {duration_text(worker.taken_for_ns)}"


def _key(participant: Participant) -> tuple[int, int, int]:
    return participant.pid_namespace, participant.pid, participant.joined_ns


def _who(participant: Participant) -> str:
    user = "" if participant.same_namespace else f"user {participant.user}, "
    return f"{participant.role} '{participant.name}' ({user}{participant.pid_text})"


def _state(participant: Participant) -> str:
    """Why its process does not run, if so. '' also if we may not see it, or if its pid means another process here."""
    if not participant.same_namespace:
        return ""
    try:  # the fields that follow the program's name, from the third on
        fields = Path(f"/proc/{participant.pid}/stat").read_text().rpartition(")")[2].split()
        began = int(fields[19])
    except (OSError, IndexError, ValueError):
        return ""
    return _STATES.get(fields[0], "") if began == participant.started_ticks else ""
