// Deaths that end a sleep. A process that dies between a change and its ring wakes no other, and what it changed, a committed
// message above all, would be found when its sleepers next look. So a thread that sleeps long is listed here: one
// thread of the process, started when first needed, waits for the deaths of the processes that may have to ring, and rings
// in their place if there is anything to see. Owns this invariant: a process that was in the topic's roster when a sleep was
// listed, and a death after that, are watched, or the thread looks every kBlindTick_ns.
//
// Why nothing is missed. A sleeper arms the bell, looks, and sleeps briefly. Then it lists its sleep, looks once more with
// over(), and sleeps on, on the value that the bell had at first. A process that had died when it was listed had changed
// all it ever will before that second look. One that joins later rings the bell as it joins (roster.cpp), before it
// changes anything: then the kernel refuses to sleep, and the sleep is listed anew. So there is no need to watch
// `membership`, and a reader that joins wakes no other.
//
// Nothing of this is on the way of a message: those that come within the brief sleep find no list. While nothing dies the
// thread looks every two seconds, for what no participant's death explains: a file deleted by hand, a topic removed by a process
// that died before it said so, a thread that another thread's exec() ended.
//
// Turned down: that each sleeper looks every few milliseconds, which costs as much as it is prompt; a blocking lock on the byte
// of a slot, which needs a thread for each participant and shows it in the file's locks; robust futexes, which the writer
// would enter and leave with each message. Processes of other pid namespaces have no number here, and where the kernel or a
// filter refuses pidfds, or no descriptor is left, there are none: for these alone the thread looks often.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "topic/topic_file.hpp"

namespace ringmain {

// What a sleep awaits.
struct Awaiting {
    const uint32_t* word = nullptr;  // that it sleeps on
    // The topic whose writers (of a shared contract: all participants) may have to ring; none: a directory's bell.
    std::shared_ptr<const TopicFile> file;
    // Has the wait ended although no bell rang? Takes no lock, and keeps the word mapped. May throw.
    std::function<bool()> over;

    bool is_over() const;  // also if that is not to be known: the sleeper meets what was thrown
};

// A sleep that is listed for as long as this lives.
class DeathWatch {
    struct Listed;
    struct Thread;
    std::unique_ptr<Listed> listed_;
    bool on_;

  public:
    explicit DeathWatch(Awaiting awaiting);
    ~DeathWatch();
    DeathWatch(const DeathWatch&) = delete;
    DeathWatch& operator=(const DeathWatch&) = delete;

    // False: no thread, descriptor or memory is to be had, so the sleeper looks for itself.
    bool on() const { return on_; }
    // To be asked once it is listed, before the sleep goes on.
    bool over() const;
    // How long to sleep at a time. Not without a limit in the main thread: a signal that comes just before the kernel puts it to
    // sleep does not interrupt it. Others hear none.
    int64_t slice_ns() const;
};

// How often a wait of this process was found to be over although no bell rang. Another number: perhaps a participant has died.
uint32_t found_over();

}  // namespace ringmain
