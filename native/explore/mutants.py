"""Mutants of the core: each is a copy of the real sources with one step broken on purpose, and some case must catch
it. Owns this invariant: a mutant whose pattern is no longer in the sources is an error, so the list cannot drift from
the code.

    mutants.py --list                 of each: the name, the sources to compile, the text that selects the cases
                                      which catch it, with "|" between them
    mutants.py --table                name, what is broken, which cases must catch it, as a Markdown table
    mutants.py --write NATIVE OUT     write what is compiled for each to OUT/NAME, patched
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    name: str
    broken: str
    cases: str
    file: str
    patches: tuple[tuple[str, str], ...]


WRITER, READER, RETIREMENT = "rule/writer.hpp", "rule/reader.hpp", "rule/retirement.hpp"
WORKER, WORK_QUEUE = "rule/worker.hpp", "rule/work_queue.hpp"
KEPT, KEPT_MESSAGES = "rule/kept.hpp", "rule/kept_messages.hpp"
BELL, BARRIER = "base/bell.hpp", "base/barrier.hpp"
ROSTER, REAPING = "topic/roster.cpp", "topic/reaping.cpp"
REMOVAL, PARTICIPANT = "topic/removal.cpp", "topic/participant.cpp"
BLOCKING_WRITER = "waiting/blocking_writer.hpp"
READING, READING_SOURCE = "waiting/blocking_reader.hpp", "waiting/blocking_reader.cpp"
ANY, ANY_SOURCE = "waiting/wait_for_any.hpp", "waiting/wait_for_any.cpp"
SLEEP = "waiting/sleep.hpp"
ENDPOINT = "topic/endpoint.cpp"
ACTORS, READERS, KEPT_CHECK = "explore/actors.cpp", "explore/readers.cpp", "explore/kept_check.cpp"
COMPILED = [ACTORS, READERS, KEPT_CHECK, READING_SOURCE, ANY_SOURCE, ENDPOINT, ROSTER, REAPING, REMOVAL, PARTICIPANT]
# What these include beyond it they do not use, so a mutant of that does not compile them again.
USES = {ANY_SOURCE: {ANY_SOURCE, ANY, READING, SLEEP}}
UNUSED = {ENDPOINT: {READER}, ACTORS: {READER}}
NATIVE = Path(__file__).parents[1]

MUTANTS = [
    Mutant(
        "claim-after-look",
        "the writer looks at the holds first and claims afterwards",
        "bus: borrows",
        WRITER,
        (
            (
                "            ring_.header.claim.store(target, std::memory_order_relaxed);\n",
                "",
            ),
            (
                "        return look_at_holds(end);\n",
                "        Status status = look_at_holds(end);\n"
                "        if (status == Status::ok) ring_.header.claim.store(claim_, std::memory_order_relaxed);\n"
                "        return status;\n",
            ),
        ),
    ),
    Mutant(
        "no-fence-after-claim",
        "no seq_cst fence between the claim and the look at the holds, though a reader borrows",
        "bus: borrows",
        WRITER,
        (
            (
                "        if (ring_.header.borrowing.load(std::memory_order_relaxed)) "
                "fence(std::memory_order_seq_cst);\n",
                "",
            ),
        ),
    ),
    Mutant(
        "claim-not-released",
        "no release fence between the claim and the bytes below it",
        "broadcast: lapped",
        WRITER,
        (
            (
                "        fence(std::memory_order_release);\n",
                "",
            ),
        ),
    ),
    Mutant(
        "claim-goes-back",
        "a writer that takes over claims from where it starts",
        "writer dies",
        WRITER,
        (
            ("std::max({end, position_ + stride_bytes_, claim_})", "std::max(end, position_ + stride_bytes_)"),
            ("if (target > claim_) {", "if (target != claim_) {"),
        ),
    ),
    Mutant(
        "forgets-the-holds",
        "a writer that was blocked once does not look at the holds again",
        "reliable: full, a slice ends",
        WRITER,
        (
            (
                "                obstacle = {i, false, end};\n",
                "                obstacle = {i, false, end};\n                safe_end_ = claim_;\n",
            ),
        ),
    ),
    Mutant(
        "commit-relaxed",
        "[COMMIT] does not release the bytes before it",
        "broadcast: sleeps",
        WRITER,
        (
            (
                "commit.store(position_, std::memory_order_release)",
                "commit.store(position_, std::memory_order_relaxed)",
            ),
        ),
    ),
    Mutant(
        "bell-before-commit",
        "the writer looks at the bell before it commits",
        "broadcast: sleeps",
        WRITER,
        (
            (
                "        ring_.header.commit.store(position_, std::memory_order_release);\n        "
                "light_barrier(fences_);",
                "        bool armed = is_armed(ring_.header.bell.load(std::memory_order_relaxed));\n"
                "        ring_.header.commit.store(position_, std::memory_order_release);\n"
                "        light_barrier(fences_);",
            ),
            (
                "        ring_if_armed(ring_.header.bell);\n",
                "        if (armed) ring_armed(ring_.header.bell);\n",
            ),
        ),
    ),
    Mutant(
        "bell-without-barrier",
        "a process that arms a bell looks again without the process-wide barrier",
        "broadcast: sleeps",
        BELL,
        (
            (
                "    armed.always_wakes = process_barrier::make();\n",
                "",
            ),
        ),
    ),
    Mutant(
        "bell-cleared-in-place",
        "a rung bell goes back to the value that it had before it was armed",
        "broadcast: two sleep, and",
        BELL,
        (
            (
                "    bell.compare_exchange(rung, rung % kArmed, std::memory_order_relaxed);\n",
                "    bell.exchange(0, std::memory_order_relaxed);\n",
            ),
        ),
    ),
    Mutant(
        "bell-armed-uncounted",
        "a process that arms an armed bell leaves it as it is",
        "broadcast: two sleep, and",
        BELL,
        (("bell.fetch_add(kArmed, std", "bell.fetch_or(kArmed, std"),),
    ),
    Mutant(
        "bell-disarmed-before-waking",
        "the writer disarms the bell, and then wakes the sleepers",
        "broadcast: the writer dies while a reader sleeps",
        BELL,
        (
            ("    bell.compare_exchange(rung, rung % kArmed, std::memory_order_relaxed);\n", ""),
            (
                '    CRASH_POINT("bell: rung',
                "    bell.compare_exchange(rung, rung % kArmed, std::memory_order_relaxed);\n"
                '    CRASH_POINT("bell: rung',
            ),
        ),
    ),
    Mutant(
        "bell-wakes-one",
        "the writer wakes one of the readers",
        "broadcast: two sleep, and",
        BELL,
        (
            (
                '    CRASH_POINT("bell: rung, sleepers not woken");\n    wake(bell.futex());\n',
                "    wake(bell.futex(), 1);\n",
            ),
        ),
    ),
    Mutant(
        "fallback-without-fence",
        "a process that is not registered does not fence either",
        "no kernel barrier: sleeps",
        BARRIER,
        (
            (
                "    if (fences) [[unlikely]]\n        fence(std::memory_order_seq_cst);\n    else\n",
                "    (void)fences;\n",
            ),
        ),
    ),
    Mutant(
        "number-after-commit",
        "the number of the message to come is written after the commit",
        "broadcast: lapped",
        WRITER,
        (
            ("        ring_.word_at(position_).store(seq_, std::memory_order_relaxed);\n", ""),
            (
                '        CRASH_POINT("publish: committed, turn kept");\n',
                "        ring_.word_at(position_).store(seq_, std::memory_order_relaxed);\n",
            ),
        ),
    ),
    Mutant(
        "turn-taken-relaxed",
        "[TURN] does not acquire",
        "bus: a writer rests, another asks",
        WRITER,
        (
            (
                "compare_exchange(seen, marked, std::memory_order_acq_rel)",
                "compare_exchange(seen, marked, std::memory_order_relaxed)",
            ),
        ),
    ),
    Mutant(
        "turn-given-back-relaxed",
        "[RELEASE] of the turn does not release",
        "bus: a writer rests, another asks",
        WRITER,
        (
            (
                "turn_given_back(kept_), std::memory_order_release",
                "turn_given_back(kept_), std::memory_order_relaxed",
            ),
        ),
    ),
    Mutant(
        "turn-forgets-sleepers",
        "a writer takes the turn without the mark for writers that still sleep",
        "bus: a writer goes on, two take the idle turn",
        WRITER,
        (("mine | (seen & (kTurnWanted | kTurnAsked)) | (waited_for_turn_ ? kTurnAsked : 0)", "mine"),),
    ),
    Mutant(
        "turn-rest-relaxed",
        "[RELEASE] of a writer that rests does not release",
        "bus: a writer rests, another asks",
        WRITER,
        (("own().busy.store(0, std::memory_order_release)", "own().busy.store(0, std::memory_order_relaxed)"),),
    ),
    Mutant(
        "turn-asked-without-barrier",
        "a writer that asks looks whether the other rests without the process-wide barrier",
        "bus: a writer rests, another takes the idle turn",
        WRITER,
        (
            (
                '                process_barrier::make_or_wait();\n                CRASH_POINT("turn: asked',
                '                CRASH_POINT("turn: asked',
            ),
        ),
    ),
    Mutant(
        "turn-taken-from-the-busy",
        "a writer that asks takes the turn of a writer in the middle of a message",
        "bus: a writer rests, another asks",
        WRITER,
        (("                if (busy.load(std::memory_order_acquire) != 0) return Status::blocked;\n", ""),),
    ),
    Mutant(
        "turn-awaited-without-barrier",
        "a writer that goes to sleep until the turn is given back does not make the process-wide barrier",
        "bus: a writer rests, another asks",
        WRITER,
        (("bool always_wakes = process_barrier::make();", "bool always_wakes = true;"),),
    ),
    Mutant(
        "turn-kept-without-a-look",
        "a writer that keeps the turn does not look whether another asks",
        "bus: a writer rests, another asks",
        WRITER,
        (
            (
                "        if (turn != kept_) [[unlikely]]\n            end_of_kept(turn);\n",
                "",
            ),
        ),
    ),
    Mutant(
        "turn-kept-without-fence",
        "where there is no process-wide barrier, a writer that rests does not fence before its look",
        "no kernel barrier: a writer rests",
        WRITER,
        (("        rest();\n        light_barrier(fences_);\n", "        rest();\n"),),
    ),
    Mutant(
        "turn-kept-though-asked",
        "a writer goes on with the turn that another has asked for",
        "bus: a writer rests, another asks",
        WRITER,
        (("return seen == kept_ ? Status::ok", "return turn_taking(seen) == kept_ ? Status::ok"),),
    ),
    Mutant(
        "burst-begun-though-asked",
        "a writer in a burst goes on with the turn that another has asked for",
        "bus: a writer rests, another asks",
        WRITER,
        (("if (seen == (kept_ | kTurnWanted) && position_", "if (turn_taking(seen) == kept_ && position_"),),
    ),
    Mutant(
        "burst-ended-though-asked",
        "a writer in a burst keeps the turn at its rest, though another has asked for it",
        "bus: a writer rests, another asks",
        WRITER,
        (
            (
                "if (turn != (kept_ | kTurnWanted) || !is_in_burst())",
                "if (turn_taking(turn) != kept_ || !is_in_burst())",
            ),
        ),
    ),
    Mutant(
        "turn-taken-with-old-words",
        "a writer that takes the turn again does not read the words anew",
        "bus: a writer rests, another asks",
        WRITER,
        (("        Status status = refresh();\n", "        Status status = position_ ? Status::ok : refresh();\n"),),
    ),
    Mutant(
        "reap-overwrites-turn",
        "a reaper stores to `turn` without comparing, though another writer may take it from a dead one that rested",
        "bus: a writer dies at rest",
        REAPING,
        (
            (
                "        if (turn.compare_exchange(seen, turn_given_back(seen), memory_order_acq_rel))\n"
                "            return wake(turn.futex());\n",
                "        return turn.exchange(turn_given_back(seen), memory_order_acq_rel), wake(turn.futex());\n",
            ),
        ),
    ),
    Mutant(
        "removal-without-barrier",
        "a remover looks whether the writer rests without the process-wide barrier",
        "bus: removed while a writer",
        REMOVAL,
        (
            (
                "            process_barrier::make_or_wait();\n            if (!wait_until_rests(topic_file",
                "            if (!wait_until_rests(topic_file",
            ),
        ),
    ),
    Mutant(
        "idle-without-barrier",
        "a worker that goes to sleep looks again without the process-wide barrier",
        "work: two workers sleep",
        WORKER,
        (("        return process_barrier::make();\n", "        return true;\n"),),
    ),
    Mutant(
        "claim-taken-over-unfenced",
        "a writer that finds the claim of a dead one far enough passes no release fence before its bytes",
        "writer dies, another",
        WRITER,
        (
            (
                "            claim_ = target;\n        }\n",
                "            claim_ = target;\n            fence(std::memory_order_release);\n        }\n",
            ),
            (
                "and our bytes come after it.\n        fence(std::memory_order_release);\n",
                "and our bytes come after it.\n",
            ),
        ),
    ),
    Mutant(
        "sleeps-without-arming",
        "a writer sleeps until a hold moves without arming the bell beside it",
        "reliable: full of one",
        WRITER,
        (
            (
                "Bell bell = ringmain::arm(holder.awaited);",
                "Bell bell{holder.awaited.futex(), "
                "static_cast<uint32_t>(holder.awaited.load(std::memory_order_acquire))};",
            ),
        ),
    ),
    Mutant(
        "sealed-not-forgotten",
        "a turn ends without a commit, and the writer keeps its position after the discarded message",
        "broadcast: sealed",
        WRITER,
        (("if (sealed_) {", "if (false) {"),),
    ),
    Mutant(
        "no-check-before",
        "the size is used without a look at claim",
        "broadcast: lapped",
        READER,
        (("if (!held(at) && !intact(at)) {", "if (false) {"),),
    ),
    Mutant(
        "no-check-after",
        "the copy is used without a second look at claim",
        "broadcast: lapped",
        READER,
        (("return held(view.position) || intact(view.position);", "return true;"),),
    ),
    Mutant(
        "check-without-fence",
        "[CHECK] has no acquire fence",
        "broadcast: lapped",
        READER,
        (
            (
                "        fence(std::memory_order_acquire);\n        return ring_.header.claim",
                "        return ring_.header.claim",
            ),
        ),
    ),
    Mutant(
        "observe-relaxed",
        "[OBSERVE] does not acquire",
        "broadcast: sleeps",
        READER,
        (
            (
                "seen_ = ring_.header.commit.load(std::memory_order_acquire)",
                "seen_ = ring_.header.commit.load(std::memory_order_relaxed)",
            ),
        ),
    ),
    Mutant(
        "hold-without-fence",
        "no seq_cst fence between [HOLD] and the look at claim",
        "bus: borrows",
        READER,
        (
            (
                "            fence(std::memory_order_seq_cst);\n",
                "",
            ),
        ),
    ),
    Mutant(
        "borrowing-without-barrier",
        "the first borrower does not make sure that writers fence",
        "bus: borrows",
        READER,
        (
            (
                "        process_barrier::make_or_wait();\n        borrows_ = true;\n",
                "        borrows_ = true;\n",
            ),
        ),
    ),
    Mutant(
        "joins-without-barrier",
        "a reader that joins looks at claim without the process-wide barrier",
        "reliable: joins while",
        READER,
        (
            (
                "                if (lower) process_barrier::make_or_wait();\n",
                "                (void)lower;\n",
            ),
        ),
    ),
    Mutant(
        "awaited-looked-at-first",
        "a reader looks for waiting writers before it moves its hold",
        "reliable: full of one",
        READER,
        (
            (
                "        own().hold.store(position, std::memory_order_release);\n"
                "        light_barrier(fences_);  // before the look at the bell\n",
                "        bool armed = own().awaited.load(std::memory_order_relaxed) & kArmed;\n"
                "        own().hold.store(position, std::memory_order_release);\n",
            ),
            (
                "        ring_if_armed(own().awaited);\n",
                "        if (armed) ring_armed(own().awaited);\n",
            ),
        ),
    ),
    Mutant(
        "held-is-lapped",
        "a claim that waits for a hold makes the held message look lapped",
        "bus: borrows",
        READER,
        (("return always_holds_ || position >= held_from_;", "return always_holds_;"),),
    ),
    Mutant(
        "takeover-without-barrier",
        "a takeover looks at the busy flag without the process-wide barrier",
        "broadcast: taken over alive",
        REMOVAL,
        (("if (!fenced) process_barrier::make_or_wait();", ""),),
    ),
    Mutant(
        "takeover-without-waiting",
        "a takeover does not wait for a message under way",
        "broadcast: taken over alive",
        PARTICIPANT,
        (
            (
                "uint32_t unfinished = wait_until_idle(s, slot_);",
                "uint32_t unfinished = kNoSlot;",
            ),
        ),
    ),
    Mutant(
        "takeover-waits-for-owner-only",
        "a takeover waits only if the turn's last owner is alive",
        "broadcast: one that takes over dies",
        PARTICIPANT,
        (
            (
                "uint32_t unfinished = wait_until_idle(s, slot_);",
                "uint32_t unfinished = alive ? wait_until_idle(s, slot_) : kNoSlot;",
            ),
        ),
    ),
    Mutant(
        "reap-keeps-turn",
        "a dead writer's turn is not given back, and it still counts as busy",
        "bus: a writer dies",
        REAPING,
        (
            (
                '    CRASH_POINT("reap: hold gone, turn kept");\n    free_turn(topic_file, index);\n',
                '    CRASH_POINT("reap: hold gone, turn kept");\n',
            ),
            ("    slot.busy.store(0, memory_order_relaxed);\n    slot.state.store(", "    slot.state.store("),
        ),
    ),
    Mutant(
        "reap-frees-slot-first",
        "the slot is freed before its hold and turn, and what a free slot holds is ignored",
        "reliable: a reader in the way leaves",
        REAPING,
        (
            (
                '    CRASH_POINT("reap: before the hold");\n',
                "    slot.state.store(static_cast<uint32_t>(SlotState::free), memory_order_release);\n",
            ),
            (
                "    bool free = !slot_taken(topic_file, index);\n",
                "    bool free = !slot_taken(topic_file, index);\n    if (free) return false;\n",
            ),
        ),
    ),
    Mutant(
        "removal-changes-no-word",
        "the remover sets `retired` and wakes, but `commit` and the bell stay as they were",
        "removed while a reader sleeps",
        RETIREMENT,
        (
            (
                "    header.commit.fetch_or(kRetired, std::memory_order_acq_rel);\n"
                "    header.bell.fetch_add(kRung, std::memory_order_acq_rel);\n",
                "",
            ),
        ),
    ),
    Mutant(
        "removal-keeps-the-bell",
        "the remover marks `commit`, and the bell stays as it was",
        "removed while a reader sleeps",
        RETIREMENT,
        (
            (
                "    header.bell.fetch_add(kRung, std::memory_order_acq_rel);\n",
                "",
            ),
        ),
    ),
    Mutant(
        "sleeps-in-a-removed-topic",
        "a reader that finds the topic removed as it goes to sleep sleeps all the same",
        "removed while a reader sleeps",
        READER,
        ((" && !(commit & kRetired)", ""),),
    ),
    Mutant(
        "removal-wakes-one",
        "the remover wakes one of the readers",
        "removed while two readers sleep",
        RETIREMENT,
        (("    wake(header.bell.futex());\n", "    wake(header.bell.futex(), 1);\n"),),
    ),
    Mutant(
        "enrolled-without-hold",
        "the creator enrols a waiting reader without its hold",
        "reliable: a reader waited",
        PARTICIPANT,
        ((" slot.hold.store(origin, memory_order_relaxed);", " {}"),),
    ),
    Mutant(
        "enrolled-looks-dead",
        "an enrolled reader is asked for its lock in the topic, which it has not opened yet",
        "reliable: a reader waited",
        ROSTER,
        (("if (slot_enrolled(topic_file, slot)) return waiter_alive(topic_file, topic_file.slot(slot));", ""),),
    ),
    Mutant(
        "passes-without-second-look",
        "a worker that moves the cursor past the messages of others does not look at them again",
        "work: given back while another passes it",
        WORKER,
        (
            (
                "            if (queue_.look(at).owner != TaskMark::kFree) continue;\n",
                "            if (at != kNoHold) continue;\n",
            ),
        ),
    ),
    Mutant(
        "looks-once-at-work",
        "a writer does not look again when a message went back to the queue while it looked at the holds",
        "work: given back and taken again while the writer looks",
        WRITER,
        (
            (
                "            if (status != Status::ok || "
                "ring_.header.returned.load(std::memory_order_seq_cst) == returned)\n"
                "                return status;\n",
                "            if (returned + 1 != 0) return status;\n",
            ),
        ),
    ),
    Mutant(
        "reaper-forgets-work",
        "a dead worker's messages are not given back",
        "work: a worker dies",
        REAPING,
        (("    if (traits(topic_file.contract).shared) work_of(topic_file).return_taken(index);\n", ""),),
    ),
    Mutant(
        "takes-without-compare",
        "a worker marks a free message by a store",
        "work: two workers look",
        WORKER,
        (
            (
                "                    if (!word.compare_exchange(seen, TaskMark{slot_ + 1, mark.returns}.in(seen),\n"
                "                                               std::memory_order_seq_cst))\n"
                "                        continue;\n",
                "                    word.exchange(TaskMark{slot_ + 1, mark.returns}.in(seen),\n"
                "                                  std::memory_order_seq_cst);\n",
            ),
        ),
    ),
    Mutant(
        "drops-before-it-keeps",
        "`tail` moves past a message that is not in the table yet",
        "broadcast: kept while a reader looks",
        WRITER,
        (
            (
                "            if (ring_.kept_kinds != 0 && !keep_dropped(ring_, tail_, position_, target))\n"
                "                return Status::corrupt;\n",
                "            uint64_t before = tail_;\n",
            ),
            (
                '            CRASH_POINT("publish: tail moved, not claimed");\n',
                "            if (ring_.kept_kinds != 0) keep_dropped(ring_, before, position_, target);\n",
            ),
        ),
    ),
    Mutant(
        "entry-not-announced",
        "an entry of the table is rewritten under an even version",
        "broadcast: an entry is rewritten while a reader looks",
        KEPT,
        (("        there.version.store(version, std::memory_order_release);\n", ""),),
    ),
    Mutant(
        "entry-announced-late",
        "no release fence between the odd version and the bytes of the entry",
        "broadcast: an entry is rewritten while a reader looks",
        KEPT,
        (("        fence(std::memory_order_release);\n", ""),),
    ),
    Mutant(
        "entry-not-released",
        "the even version does not release the bytes of the entry",
        "broadcast: an entry is rewritten while a reader looks",
        KEPT,
        (
            (
                "there.version.store(version + 1, std::memory_order_release)",
                "there.version.store(version + 1, std::memory_order_relaxed)",
            ),
        ),
    ),
    Mutant(
        "entry-of-the-dead-stays-odd",
        "a writer counts on from the odd version that a dead one left",
        "broadcast: the writer dies as it keeps, another comes, read at the end",
        KEPT,
        (
            (
                "(there.version.load(std::memory_order_relaxed) + 1) | 1;",
                "there.version.load(std::memory_order_relaxed) + 1;",
            ),
        ),
    ),
    Mutant(
        "entry-not-checked-again",
        "a reader does not look whether the entry has changed while it was copied",
        "broadcast: an entry is rewritten while a reader looks",
        KEPT_MESSAGES,
        (("if (entry.version.load(std::memory_order_acquire) != version || !fits) continue;", "if (!fits) continue;"),),
    ),
    Mutant(
        "entry-passed-over-without-acquire",
        "a reader that passes over an entry may miss the `commit` of the later message",
        "broadcast: kept while a reader looks",
        KEPT_MESSAGES,
        (
            (
                "if (entry.version.load(std::memory_order_acquire) != version || !fits)",
                "if (entry.version.load(std::memory_order_relaxed) != version || !fits)",
            ),
        ),
    ),
    Mutant(
        "commit-before-the-table",
        "a reader reads `commit` first, then the table",
        "broadcast: kept while a reader looks",
        KEPT_MESSAGES,
        (
            ("        look_at_table();\n", ""),
            (
                "        end = ring_.header.commit.load(std::memory_order_acquire) & kPositionMask;\n",
                "        end = ring_.header.commit.load(std::memory_order_acquire) & kPositionMask;\n"
                "        look_at_table();\n",
            ),
        ),
    ),
    Mutant(
        "oldest-relaxed",
        "a reader that sees where the ring begins may miss what was dropped before",
        "broadcast: kept while a reader looks",
        KEPT_MESSAGES,
        (
            (
                "uint64_t tail = ring_.header.tail.load(std::memory_order_acquire)",
                "uint64_t tail = ring_.header.tail.load(std::memory_order_relaxed)",
            ),
        ),
    ),
    Mutant(
        "kept-without-a-last-check",
        "a reader does not look whether what it copied from the ring was overwritten",
        "broadcast: kept",
        KEPT_MESSAGES,
        (("return !intact(tail) ? Status::blocked : consistent()", "return consistent()"),),
    ),
    Mutant(
        "marks-count-as-change",
        "a writer that waits takes its own mark on the turn of a dead one for a change, and never sleeps",
        "bus: a writer dies in its turn",
        BLOCKING_WRITER,
        (
            (
                "turn_taking(s.header().turn.load(std::memory_order_relaxed)) != o.taking",
                "s.header().turn.load(std::memory_order_relaxed) != o.taking",
            ),
        ),
    ),
    Mutant(
        "wait-does-not-reap",
        "a writer that waits does not look whether the other has died",
        "bus: a writer dies in its turn",
        BLOCKING_WRITER,
        (("        if (reap_if_dead(w_.topic_file(), o.slot)) return;\n", ""),),
    ),
    Mutant(
        "wait-without-arming",
        "a writer that waits for a reader sleeps without having armed its bell",
        "pipe: full, both sleep",
        BLOCKING_WRITER,
        (
            (
                "        Bell bell = w_.writer->arm();\n",
                "        const Word<uint64_t>& word = w_.topic_file().slot(o.slot).awaited;\n"
                "        auto value = static_cast<uint32_t>(word.load(std::memory_order_acquire));\n"
                "        Bell bell = o.is_turn ? w_.writer->arm() : Bell{word.futex(), value};\n",
            ),
        ),
    ),
    Mutant(
        "reader-sleeps-without-a-last-look",
        "a reader that has armed the bell does not look at `commit` again",
        "broadcast: sleeps",
        READER,
        (("return (commit & kPositionMask) == position_ && !(commit & kRetired);", "return !(commit & kRetired);"),),
    ),
    Mutant(
        "worker-sleeps-without-a-last-look",
        "a worker that is idle does not look for a message again",
        "work: one worker",
        WORKER,
        (
            (
                "        if (has_more() || is_retired(ring_.header)) return {};",
                "        if (is_retired(ring_.header)) return {};",
            ),
        ),
    ),
    Mutant(
        "worker-sleeps-in-a-removed-topic",
        "a worker that finds the topic removed as it goes to sleep sleeps all the same",
        "work: removed",
        WORKER,
        (("        if (has_more() || is_retired(ring_.header)) return {};", "        if (has_more()) return {};"),),
    ),
    Mutant(
        "sleeps-although-something-came",
        "a reader that finds something as it arms the bell sleeps all the same",
        "broadcast: sleeps",
        READING_SOURCE,
        (("return {bell, !bell.word, participant->shared()};", "return {bell, false, participant->shared()};"),),
    ),
    Mutant(
        "spins-without-end",
        "a reader whose spin was in vain looks again, and does not sleep",
        "spins, sleeps and is woken",
        READING,
        (
            (
                "            if (spin.until(left, comes, stop, host)) continue;\n",
                "            if (spin.asked_for()) continue;\n            (void)comes, (void)stop;\n",
            ),
        ),
    ),
    Mutant(
        "ends-with-messages-unread",
        "a reader leaves a removed topic although it has messages to read",
        "removed while a reader looks",
        READING,
        (("!topic_file().retired() || has_more()", "!topic_file().retired()"),),
    ),
    Mutant(
        "does-not-follow",
        "a reader that finds the topic removed as it arms the bell does not leave that life of it",
        "removed while a reader sleeps",
        READING,
        (
            (
                "        follows = next.at_once;\n        // Nothing",
                "        const bool at_once = next.at_once;\n        // Nothing",
            ),
            (
                "        if (!follows) {\n            spins = sleep_on_bell",
                "        if (!at_once) {\n            spins = sleep_on_bell",
            ),
        ),
    ),
    Mutant(
        "listens-after-its-look",
        "a reader without a topic reads the directory's bell after it has looked for the topic",
        "broadcast: gets its name",
        READING,
        (
            (
                "        Listening listening = listen();\n        Outcome found = follows",
                "        Listening listening;\n        Outcome found = follows",
            ),
            (
                "        Awaited next = awaited(listening);\n        follows",
                "        if (!attached()) listening = listen();\n"
                "        Awaited next = awaited(listening);\n        follows",
            ),
        ),
    ),
    Mutant(
        "misses-the-beginning",
        "a reader that waited for the topic begins with the next message",
        "broadcast: gets its name",
        READING,
        (("    if (!participant) {\n        joined_before_topic = true;\n", "    if (!participant) {\n"),),
    ),
    Mutant(
        "listed-without-a-look",
        "a sleep is listed, and its wait does not look once more",
        "broadcast: the writer dies while a reader sleeps",
        SLEEP,
        (("    briefly = deaths.over();\n", "    briefly = false;\n"),),
    ),
    Mutant(
        "death-unseen-by-a-reader",
        "a death does not make a sleeping reader look at `commit`",
        "broadcast: the writer dies while a reader sleeps",
        READING_SOURCE,
        (
            (
                "        return (file->header().commit.load(std::memory_order_acquire) & kPositionMask) != read;\n",
                "        return (void)read, false;\n",
            ),
        ),
    ),
    Mutant(
        "removal-unseen-after-a-death",
        "a death does not make a sleeping reader look whether the topic was removed",
        "broadcast: removed, the remover dies",
        READING_SOURCE,
        (("if (file->retired() || deleted_by_hand(*file)) return true;", "if (deleted_by_hand(*file)) return true;"),),
    ),
    Mutant(
        "death-unseen-by-a-worker",
        "a death does not make a sleeping worker look for messages of dead ones",
        "work: a worker dies",
        READING_SOURCE,
        (("return worker->has_more() || dead_worker_has_messages(*file);", "return worker->has_more();"),),
    ),
    Mutant(
        "worker-does-not-reap",
        "a worker whose wait a death has ended does not give back what dead ones had",
        "work: a worker dies",
        READING,
        (("if (found != Outcome::not_there || !give_back_of_dead()) return found;", "return found;"),),
    ),
    Mutant(
        "worker-never-idle-does-not-reap",
        "a worker that never sleeps does not look for messages of dead ones",
        "work: a worker dies, another is never idle",
        READING,
        (("        look_for_dead(now_ns);\n", ""),),
    ),
    Mutant(
        "worker-holds-nothing",
        "a worker takes a message, and moves its hold to the first that it takes later",
        "work: one worker",
        READING,
        (("        bool ours = mine.worker.release(mine.keep(leases));\n", "        bool ours = true;\n"),),
    ),
    Mutant(
        "worker-passes-nothing-on",
        "a worker that was woken for a message that it does not want wakes no other",
        "work: one wants only some",
        READING,
        (("        mine.worker.pass_on(status == Status::ok);\n", ""),),
    ),
    Mutant(
        "worker-forgets-that-it-was-woken",
        "a worker that a message has woken does not wake the next for the next message",
        "work: one is woken, takes a message",
        READING,
        (("            if (work && spins) work->worker.woken();\n", ""),),
    ),
    Mutant(
        "woken-worker-trusts-what-it-saw",
        "a worker that a message has woken does not say that others sleep, where it last saw that it was said",
        "work: one is woken, takes a message",
        WORKER,
        (
            (
                "        ring_.header.work_idle.exchange(1, std::memory_order_relaxed);\n"
                "        process_barrier::make();\n",
                "        be_idle();\n",
            ),
        ),
    ),
    Mutant(
        "stopped-worker-passes-nothing-on",
        "a worker that was woken, and whose program ends its wait, wakes no other",
        "work: one is woken, and its program stops it",
        READING,
        (("            pass_on();\n            return Outcome::stopped;", "            return Outcome::stopped;"),),
    ),
    Mutant(
        "never-leaves-a-life",
        "a reader that finds nothing does not look whether the topic was removed",
        "follows into the next life",
        READING,
        (("        if (!topic_file().retired() || has_more()) return", "        if (kForever) return"),),
    ),
    Mutant(
        "begins-the-next-life-late",
        "a reader that follows into the topic's next life begins with the next message there",
        "broadcast: a reader follows into the next life",
        READING,
        (
            (
                "        if (!leases.empty()) return Outcome::not_there;\n        detach(host);\n"
                "        joined_before_topic = true;\n",
                "        if (!leases.empty()) return Outcome::not_there;\n        detach(host);\n",
            ),
            (
                "    if (!participant) {\n        joined_before_topic = true;\n",
                "    if (!participant) {\n",
            ),
        ),
    ),
    Mutant(
        "keeps-the-old-mapping",
        "a reader that follows into the topic's next life reads the ring that it knows",
        "broadcast: a reader joins, and follows into the next life",
        READING_SOURCE,
        (
            (
                "    Ring ring = ring_of(topic_file());\n    reader =",
                "    static const Ring ring = ring_of(topic_file());\n    reader =",
            ),
        ),
    ),
    Mutant(
        "joins-a-life-that-has-ended",
        "who opens a topic that was not removed to the end joins it",
        "the remover dies, another creates the next life",
        ENDPOINT,
        (("    if (!stopped && !topic_file.retired()) return true;\n", "    return true;\n"),),
    ),
    Mutant(
        "named-without-enrolling",
        "who creates a topic does not enrol the readers that wait for it",
        "reliable: gets its name",
        ENDPOINT,
        (("            enrol_waiting(topic_file, *waiting, own, lock);\n", ""),),
    ),
    Mutant(
        "looks-once-for-the-topic",
        "a reader that has gone to the waiting file does not look for the topic again",
        "reliable: gets its name",
        ENDPOINT,
        (("            continue;  // the topic may have", "            return nullptr;  // the topic may have"),),
    ),
    Mutant(
        "any-without-arming",
        "a wait for several readers arms no bell",
        "waits for two, one of them sends",
        READER,
        (
            (
                "return arm_before_barrier(ring_.header.bell);",
                "auto value = ring_.header.bell.load(std::memory_order_acquire);\n"
                "        return {ring_.header.bell.futex(), static_cast<uint32_t>(value)};",
            ),
        ),
    ),
    Mutant(
        "any-without-barrier",
        "a wait for several readers looks again without the process-wide barrier",
        "broadcast: waits for two, one of them sends",
        ANY,
        (("        sleep.make_barrier();\n", ""),),
    ),
    Mutant(
        "any-without-a-last-look",
        "a wait for several readers does not look at `commit` again once the bells are armed",
        "waits for two, one of them sends",
        ANY,
        (("            look_again |= !reader.may_sleep();\n", "            (void)reader;\n"),),
    ),
    Mutant(
        "any-does-not-look-for-topics",
        "a wait for several readers does not look for a topic that was not there",
        "waits for two, one is created",
        ANY,
        (
            (
                "            Outcome now = reader.now(view, false, false, of_reader);\n            if (now",
                "            Outcome now = reader.attached() ? reader.now(view, false, false, of_reader) : "
                "Outcome::not_there;\n            if (now",
            ),
        ),
    ),
    Mutant(
        "any-listens-after-its-look",
        "a wait for several readers reads the directory's bell after it has looked for a topic",
        "waits for two, one is created",
        ANY,
        (
            ("            Listening listening = reader.listen();\n", ""),
            (
                "            Awaited next = reader.awaited(listening, true);\n",
                "            Awaited next = reader.awaited(reader.listen(), true);\n",
            ),
        ),
    ),
    Mutant(
        "any-sleeps-although-something-came",
        "a wait for several readers sleeps although one of them has found something as it armed its bell",
        "work: a worker waits for two",
        ANY,
        (("            look_again |= next.at_once;\n", ""),),
    ),
    Mutant(
        "any-sleeps-on-one",
        "a wait for several readers sleeps on the first bell alone",
        "waits for two, one of them sends",
        ANY_SOURCE,
        (("std::min(bells_.size(), kMaxBells), timeout_ns)", "1, timeout_ns)"),),
    ),
    Mutant(
        "any-takes-two-topics-for-one",
        "a wait for several readers takes two topics for one, and sleeps on the bell of the first",
        "waits for two, one of them sends",
        ANY_SOURCE,
        (("lives_.insert({file.inode, file.epoch, reader.work != nullptr})", "lives_.insert({1, 1, false})"),),
    ),
    Mutant(
        "any-forgets-the-directory",
        "a wait for several readers does not sleep on the directory's bell for a topic that is not there",
        "waits for two, one is created",
        ANY_SOURCE,
        (("        add(reader.directory, awaited.bell);\n", ""),),
    ),
    Mutant(
        "any-lists-one",
        "a wait for several readers has the deaths of the first topic's participants watched alone",
        "waits for two, a writer dies",
        ANY_SOURCE,
        (
            (
                "for (const Awaiting& each : awaiting_) deaths.each",
                "for (const Awaiting& each : {awaiting_.front()}) deaths.each",
            ),
        ),
    ),
    Mutant(
        "any-asks-one",
        "a wait for several readers whose sleeps are listed looks at the first topic once more, and not at the others",
        "waits for two, a writer dies",
        ANY_SOURCE,
        (
            (
                "return std::ranges::any_of(each, [](const auto& deaths) { return deaths->over(); });",
                "return each.front()->over();",
            ),
        ),
    ),
    Mutant(
        "any-death-unseen",
        "a death does not make a wait for several readers look for the topics that were not there",
        "waits for two, the creator of one dies",
        ANY_SOURCE,
        (
            (
                "        return directory->replaced() ||\n"
                "               std::ranges::any_of(*missing, [](const auto& each) "
                "{ return each.first->has(each.second); });\n",
                "        return directory->replaced();\n",
            ),
        ),
    ),
    Mutant(
        "any-does-not-reap",
        "a wait for several workers that a death has ended does not give back what dead ones had",
        "work: one dies, another waits for two",
        READING,
        (("if (found != Outcome::not_there || !give_back_of_dead()) return found;", "return found;"),),
    ),
    Mutant(
        "any-forgets-that-it-was-woken",
        "a worker that waits for several topics and was woken does not wake the next for the next message",
        "work: one waits for two, takes",
        ANY,
        (("return reader.woken(), Outcome::not_there;", "return (void)reader, Outcome::not_there;"),),
    ),
    Mutant(
        "any-stopped-passes-nothing-on",
        "a worker that waits for several topics was woken, and its program ends its wait: it wakes no other",
        "work: one waits for two, and its program stops it",
        ANY,
        (("return reader.pass_on(), Outcome::not_there;", "return (void)reader, Outcome::not_there;"),),
    ),
    Mutant(
        "any-does-not-listen-to-the-directory",
        "a wait that shall end when the directory changes does not sleep on its bell",
        "waits for one and for the directory",
        ANY,
        (("                sleep.add(reader.directory, reader.directory->bell());\n", ""),),
    ),
    Mutant(
        "any-does-not-look-at-the-directory",
        "a wait that shall end when the directory changes does not look whether it has",
        "waits for one and for the directory",
        ANY,
        (("reader.directory->changes() != *directory_seen;", "false;"),),
    ),
    Mutant(
        "any-looks-at-the-directory-too-early",
        "a wait looks whether the directory has changed, and then reads its bell",
        "waits for one and for the directory",
        ANY,
        (
            ("                sleep.add(reader.directory, reader.directory->bell());\n", ""),
            (
                "reader.directory->changes() != *directory_seen;\n",
                "reader.directory->changes() != *directory_seen;\n"
                "                sleep.add(reader.directory, reader.directory->bell());\n",
            ),
        ),
    ),
]


def includes(file: str, broken: str) -> bool:
    """Is `broken` this file, or does it include it, itself or through others?"""
    if broken in UNUSED.get(file, ()) or broken not in USES.get(file, {broken}):
        return False
    pending, seen = [file], set[str]()
    while pending:
        name = pending.pop()
        if name == broken:
            return True
        if name not in seen:
            seen.add(name)
            pending += re.findall(r'^#include "(.+)"', (NATIVE / name).read_text(), re.MULTILINE)
    return False


def write(mutant: Mutant, native: Path, out: Path) -> None:
    headers = [str(path.relative_to(native)) for path in native.glob("*/*.hpp")]
    for source in [*headers, *COMPILED]:
        text = (native / source).read_text()
        for old, new in mutant.patches if source == mutant.file else ():
            if text.count(old) != 1:
                sys.exit(f"mutant {mutant.name}: {mutant.file} has {text.count(old)} times, not once:\n{old}")
            text = text.replace(old, new)
        copy = out / source
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.read_text() != text:  # what is as it was is not compiled again
            copy.write_text(text)


def main(arguments: list[str]) -> None:
    match arguments:
        case ["--list"]:
            for m in MUTANTS:
                # The others are compiled once for all mutants.
                sources = [file for file in COMPILED if includes(file, m.file)]
                print(m.name, " ".join(sources), m.cases, sep="|")
        case ["--table"]:
            print("| mutant | what is broken | caught by |\n|---|---|---|")
            for m in MUTANTS:
                print(f"| `{m.name}` | {m.broken} | {m.cases} |")
        case ["--write", native, out]:
            for m in MUTANTS:
                write(m, Path(native), Path(out) / m.name)
        case _:
            sys.exit(__doc__)


main(sys.argv[1:])
