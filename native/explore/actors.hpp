// The actors: writers, readers and workers. They wait by the loops that ship (waiting/), and check what they receive.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "explore/engine.hpp"
#include "format/layout.hpp"
#include "rule/reader.hpp"

namespace ringmain::explore {

struct Topic {
    Contract contract;
    uint64_t capacity_bytes;
    uint32_t kept_kinds = 0;  // 0: it has no table of them
    // The kind of each message is a letter, and that of all that follow the last letter. Empty: none has a kind.
    std::string_view kinds = {};
    bool persists = true;  // when its last participant leaves

    std::string_view kind_of(uint64_t seq) const {
        return kinds.empty() ? kinds : kinds.substr(std::min<uint64_t>(seq, kinds.size() - 1), 1);
    }
    // Where messages have kinds, every second one has a sender: torn names make another kind.
    std::string_view sender_of(uint64_t seq) const { return !kinds.empty() && seq % 2 ? "a sender" : ""; }
};
extern Topic topic;

struct Sends {
    std::vector<uint32_t> sizes;  // one message each
    size_t batch = 1;             // so many with one commit
    int topic = 0;
    bool joins = false;  // while the others run; otherwise it is there from the start
    bool takeover = false;
    bool opens = false;            // joins, and creates the topic if there is none
    bool first = false;            // and there is none when the case begins
    bool leaves = false;           // leaves the topic at the end
    bool removes = false;          // removes the topic at the end
    std::vector<uint32_t> again;   // then opens it, and sends these
    bool gives_up = false;         // rather than wait for a hold, ends its turn and sends the next
    bool drops_first = false;      // seals the first message and ends the turn without a commit
    bool takes_idle_turn = false;  // does not wait until a writer at rest gives the turn back
};

struct Reads {
    int topics = 1;  // it waits for all of them at once
    int looks = 0;   // so many tries, then only the last look at the end; 0: sleeps when there is nothing
    Start start = Start::next;
    Start on_lap = Start::oldest;
    bool joins = false;
    bool waited = false;           // it waits for the topic, and its creator has enrolled it
    bool spins = false;            // before it sleeps: one look
    bool only_at_the_end = false;  // the last look alone
    bool when_free = false;  // the one reader's slot is taken: tries when an actor has died, or at the end
    bool observes = false;
    bool borrows = false;
    bool conflates = false;
    bool kept = false;             // begins with the last message of each kind
    int leaves_after = 0;          // so many messages; 0: stays
    uint64_t until = 0;            // sleeps until it has so many messages, and not again; 0: always
    bool until_removed = false;    // sleeps when there is nothing, and ends with the topic's life
    bool until_directory = false;  // waits for several, until the directory changes
};

// On a shared contract.
struct Works {
    int topics = 1;  // it waits for all of them at once
    int looks = 0;   // so many tries, then only the last look at the end; 0: sleeps when there is nothing
    bool joins = false;
    bool has_first = false;   // it took the first message before the execution begins
    bool only_first = false;  // and does nothing more
    int gives_back = 0;       // so many of the messages it gets
    int leaves_after = 0;     // so many messages; 0: stays
    bool odd_only = false;    // it wants messages with odd numbers
    bool spins = false;       // before it sleeps: one look
    bool never_idle =
        false;  // looks for dead workers though it never sleeps; begins when one has died, or at the end
    bool until_removed = false;  // sleeps when there is nothing, and ends with the topic's life
    bool stops = false;          // its program ends the wait after the first sleep
};

void open_topics(int count, const Topic& opened);
void begin_without(int topic);  // it is created while the actors run
// In setup: joins. The writer may send messages before the execution begins.
void add_writer(int actor, int topic, const std::vector<uint32_t>& sent_before = {});
void add_reader(int actor, const Reads& reads);

void add_worker(int actor, const Works& works);

void enrol(int creator);  // those that wait for the topic; before anything is sent

uint64_t account();  // what each reader got and lost, and what was committed

// The actors themselves.
void write(const Sends& sends);
void read(const Reads& reads);
void work(const Works& works);

}  // namespace ringmain::explore
