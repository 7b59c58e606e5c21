#include "explore/cases.hpp"

#include <algorithm>
#include <optional>

#include "explore/actors.hpp"
#include "explore/model.hpp"

namespace ringmain::explore {

namespace {

constexpr uint64_t kRing = 512;  // stride: 64 bytes
// Payload sizes. One S and its successor lie in one stride, an M does not.
constexpr uint32_t S = 8, M = 40;

const char* name_of(Contract c) {
    switch (c) {
        case Contract::broadcast:
            return "broadcast";
        case Contract::pipe:
            return "pipe";
        case Contract::bus:
            return "bus";
        case Contract::work:
            return "work";
        default:
            return "reliable";
    }
}

// The parts of a case: its actors, in the order of their slots.
struct Part {
    std::string name;
    bool writes;
    Sends sends;
    Reads reads;
    std::vector<uint32_t> before;
    bool mortal = false;
    std::optional<Works> works;

    bool joins() const { return writes ? sends.joins || sends.opens : works ? works->joins : reads.joins; }
};

Part writer(Sends sends, std::vector<uint32_t> before = {}) { return {"writer", true, sends, {}, before}; }
Part reader(Reads reads) { return {"reader", false, {}, reads, {}}; }
Part worker(Works works) { return {"worker", false, {}, {}, {}, false, works}; }
Part mortal(Part part) {
    part.mortal = true;
    return part;
}

Case make(std::string name, const Topic& opened, std::vector<Part> parts, int deaths = 0, int slices = 0) {
    Case c;
    c.name = name;
    c.contract = name_of(opened.contract);
    c.deaths = deaths;
    c.slices = slices;
    c.account = account;
    for (size_t i = 0; i < parts.size(); ++i) {
        const Part& part = parts[i];
        c.names.push_back(part.name + " " + std::to_string(i));
        if (part.mortal) c.mortal.push_back(static_cast<int>(i));
        if (part.writes)
            c.actors.push_back([part] { write(part.sends); });
        else if (part.works)
            c.actors.push_back([part] { work(*part.works); });
        else
            c.actors.push_back([part] { read(part.reads); });
    }
    int topics = 1;
    for (const Part& part : parts)
        topics =
            std::max({topics, part.sends.topic + 1, part.reads.topics, part.works ? part.works->topics : 1});
    c.setup = [topics, opened, parts] {
        open_topics(topics, opened);
        for (const Part& part : parts)
            if (part.sends.first) begin_without(part.sends.topic);
        // Readers that are there from the start see all that was sent before them, unless they start at the next message.
        // Those that wait for the topic are enrolled before anything is sent.
        for (size_t i = 0; i < parts.size(); ++i)
            if (parts[i].reads.waited) add_reader(static_cast<int>(i), parts[i].reads);
        if (std::ranges::any_of(parts, [](const Part& part) { return part.reads.waited; })) enrol(0);
        for (bool writers : {true, false})
            for (size_t i = 0; i < parts.size(); ++i) {
                const Part& part = parts[i];
                if (part.writes != writers || part.joins()) continue;
                if (part.reads.waited) continue;
                if (part.writes)
                    add_writer(static_cast<int>(i), part.sends.topic, part.before);
                else if (part.works)
                    add_worker(static_cast<int>(i), *part.works);
                else
                    add_reader(static_cast<int>(i), part.reads);
            }
    };
    return c;
}

Case make(std::string name, Contract contract, std::vector<Part> parts, int deaths = 0, int slices = 0) {
    return make(name, Topic{contract, kRing}, parts, deaths, slices);
}

// What was sent before the execution begins: the next message laps, or must wait for, a reader at the beginning.
const std::vector<uint32_t> kBrim{200, 232};
const std::vector<uint32_t> kOne{456};  // the same with a single message, for cases with many actors

const Reads kAll{.start = Start::oldest};  // sleeps when there is nothing
const Reads kOnce{.looks = 1, .start = Start::oldest};
const Reads kTwice{.looks = 2, .start = Start::oldest};
const Reads kAtTheEnd{.start = Start::oldest, .only_at_the_end = true};
const Reads kWaited{.start = Start::oldest, .waited = true};
const Reads kBorrow{.looks = 1, .start = Start::oldest, .borrows = true};

void add_broadcast(std::vector<Case>& cases) {
    auto add = [&](const char* name, std::vector<Part> parts, int deaths = 0) {
        cases.push_back(make(name, Contract::broadcast, parts, deaths));
    };
    add("lapped, goes on at the oldest",
        {writer({.sizes = {S, S, M, S}}, kBrim), reader({.looks = 4, .start = Start::oldest})});
    add("lapped, goes on at the next", {writer({.sizes = {S, S, M, S}}, kBrim),
                                        reader({.looks = 3, .start = Start::oldest, .on_lap = Start::next})});
    add("lapped by a batch", {writer({.sizes = {S, S, S}, .batch = 3}, kBrim), reader(kTwice)});
    add("conflates", {writer({.sizes = {S, S, S}}, kBrim),
                      reader({.looks = 3, .start = Start::oldest, .conflates = true})});
    add("sealed and dropped", {writer({.sizes = {S, S, S}, .drops_first = true}), reader({.looks = 3})});
    add("two readers", {writer({.sizes = {S, S, S}}, kBrim), reader(kTwice), reader(kTwice)});
    add("sleeps and is woken", {writer({.sizes = {S, S}}), reader({})});
    add("spins, sleeps and is woken", {writer({.sizes = {S}}), reader({.spins = true})});
    cases.push_back(make("a sleep is listed, and the reader woken", Contract::broadcast,
                         {writer({.sizes = {S}}), reader({})}, 0, 1));
    add("gets its name while a reader waits for it",
        {writer({.sizes = {S}, .opens = true, .first = true}), reader({.joins = true})});
    add("gets its name while an observer waits for it",
        {writer({.sizes = {S}, .opens = true, .first = true}), reader({.joins = true, .observes = true})});
    add("two sleep and are woken", {writer({.sizes = {S, S}}), reader({}), reader({})});
    add("two sleep and are woken once", {writer({.sizes = {S}}), reader({}), reader({})});
    add("two sleep, and one of them again", {writer({.sizes = {S}}), reader({.until = 1}), reader({})});
    add("the writer dies while a reader sleeps", {mortal(writer({.sizes = {S, S}})), reader({})}, 1);
    add("joins while it is written",
        {writer({.sizes = {S, S}}, kBrim), reader({.looks = 2, .start = Start::oldest, .joins = true})});
    add("joins at the newest while it is written",
        {writer({.sizes = {S, S}}, kBrim), reader({.looks = 2, .start = Start::newest, .joins = true})});
    add("taken over alive",
        {writer({.sizes = {S, S}}), writer({.sizes = {S}, .joins = true, .takeover = true})});
    add("taken over alive, read", {writer({.sizes = {S}}, kOne),
                                   writer({.sizes = {S}, .joins = true, .takeover = true}), reader(kOnce)});
    add("the writer dies, another comes",
        {mortal(writer({.sizes = {M}}, kOne)), writer({.sizes = {S}, .joins = true, .takeover = true}),
         reader(kOnce)},
        1);
    add("the writer dies, another comes, read at the end",
        {mortal(writer({.sizes = {M, S}})), writer({.sizes = {S, S}, .joins = true, .takeover = true}),
         reader(kAtTheEnd)},
        1);
    add("one that takes over dies, another takes over",
        {writer({.sizes = {S}}), mortal(writer({.sizes = {S}, .joins = true, .takeover = true})),
         writer({.sizes = {S}, .joins = true, .takeover = true})},
        1);
    add("two writers die, another comes, read at the end",
        {mortal(writer({.sizes = {M}})), mortal(writer({.sizes = {S}, .joins = true, .takeover = true})),
         writer({.sizes = {S}, .joins = true, .takeover = true}), reader(kAtTheEnd)},
        2);
    add("a reader joins and dies",
        {writer({.sizes = {S, S}}, kBrim),
         mortal(reader({.looks = 2, .start = Start::oldest, .joins = true}))},
        1);
    add("the writer and a reader leave, and die of it",
        {mortal(writer({.sizes = {S}, .leaves = true})), mortal(reader({.leaves_after = 1}))}, 2);
}

void add_pipe(std::vector<Case>& cases) {
    auto add = [&](const char* name, std::vector<Part> parts, int deaths = 0, int slices = 0) {
        cases.push_back(make(name, Contract::pipe, parts, deaths, slices));
    };
    Sends newcomer{.sizes = {S}, .joins = true, .takeover = true};
    add("full, both sleep", {writer({.sizes = {S, M, S}}, kBrim), reader({})});
    add("the writer dies, another comes",
        {mortal(writer({.sizes = {M}}, kOne)), writer(newcomer), reader({})}, 1);
    add("the writer dies, another comes, read at the end",
        {mortal(writer({.sizes = {M, S}})), writer({.sizes = {S, S}, .joins = true, .takeover = true}),
         reader(kAtTheEnd)},
        1);
    add("the reader dies, another comes",
        {writer({.sizes = {S}}, kOne), mortal(reader({})), reader({.joins = true, .when_free = true})}, 1);
    add("the reader leaves, or dies of it, another comes",
        {writer({.sizes = {S}}, kOne), mortal(reader({.leaves_after = 1})),
         reader({.joins = true, .when_free = true})},
        1);
    add("two writers die, another comes, read at the end",
        {mortal(writer({.sizes = {M}})), mortal(writer({.sizes = {S}, .joins = true, .takeover = true})),
         writer(newcomer), reader(kAtTheEnd)},
        2);
    add("its reader waited for the topic, or dies of it, another comes",
        {writer({.sizes = {S}}, kOne), mortal(reader(kWaited)), reader({.joins = true, .when_free = true})},
        1);
}

void add_bus(std::vector<Case>& cases) {
    auto add = [&](const char* name, std::vector<Part> parts, int deaths = 0, int slices = 0) {
        cases.push_back(make(name, Contract::bus, parts, deaths, slices));
    };
    add("lapped", {writer({.sizes = {S, S, S}}, kBrim), reader({.looks = 3, .start = Start::oldest})});
    add("borrows",
        {writer({.sizes = {S, S}}, kBrim), reader({.looks = 2, .start = Start::oldest, .borrows = true})}, 0,
        1);
    add("two writers, lapped", {writer({.sizes = {S}}, kOne), writer({.sizes = {S}}), reader(kOnce)});
    add("two writers, borrows", {writer({.sizes = {S}}, kOne), writer({.sizes = {S}}), reader(kBorrow)});
    add("two borrowers", {writer({.sizes = {S}}, kOne), reader(kBorrow), reader(kBorrow)});
    add("three writers", {writer({.sizes = {S}}), writer({.sizes = {S}}), writer({.sizes = {S}})});
    add("a borrower dies", {writer({.sizes = {S, S}}, kBrim), mortal(reader(kBorrow))}, 1);
    add("a writer dies in its turn", {mortal(writer({.sizes = {M}}, kBrim)), writer({.sizes = {S}})}, 1);
    add("a writer dies, another goes on",
        {mortal(writer({.sizes = {M}}, kOne)), writer({.sizes = {S}}), reader(kBorrow)}, 1);
    add("a borrower dies, its reaper dies",
        {mortal(writer({.sizes = {S}}, kOne)), writer({.sizes = {S}}), mortal(reader(kBorrow))}, 2);
    add("a borrower joins and leaves, and dies of it",
        {writer({.sizes = {S, S}}, kBrim),
         mortal(reader({.start = Start::oldest, .joins = true, .borrows = true, .leaves_after = 1}))},
        1);
    const std::vector<uint32_t> kept{S};  // it sent, and has kept the turn since
    add("a writer rests, another asks", {writer({.sizes = {S}}, kept), writer({.sizes = {S}})});
    add("a writer rests, another takes the idle turn",
        {writer({.sizes = {S}}, kept), writer({.sizes = {S}, .takes_idle_turn = true})});
    add("a writer rests, and asks again", {writer({.sizes = {S}}, kept), writer({.sizes = {S, S}})});
    add("a writer rests, two ask", {writer({}, kept), writer({.sizes = {S}}), writer({.sizes = {S}})});
    add("a writer goes on, two take the idle turn",
        {writer({.sizes = {S}}, kept), writer({.sizes = {S}, .takes_idle_turn = true}),
         writer({.sizes = {S}, .takes_idle_turn = true})});
    add("a writer dies, at rest or not", {mortal(writer({.sizes = {S}}, kept)), writer({.sizes = {S}})}, 1);
    add("a writer that asks dies", {writer({.sizes = {S}}, kept), mortal(writer({.sizes = {S}}))}, 1);
    add("a writer leaves while another takes the idle turn",
        {writer({.sizes = {S}, .leaves = true}, kept), writer({.sizes = {S}, .takes_idle_turn = true})});
    add("a writer dies at rest while two ask",
        {mortal(writer({.leaves = true}, kept)), writer({.sizes = {S}}), writer({.sizes = {S}})}, 1);
    add("removed while a writer has kept the turn",
        {writer({.sizes = {S}}, kept), writer({.removes = true})});
    add("a writer leaves, or dies of it",
        {mortal(writer({.sizes = {S}, .leaves = true}, kBrim)), writer({.sizes = {S}}),
         reader({.looks = 1, .start = Start::oldest})},
        1);
}

void add_reliable(std::vector<Case>& cases) {
    auto add = [&](const char* name, std::vector<Part> parts, int deaths = 0, int slices = 0) {
        cases.push_back(make(name, Contract::reliable, parts, deaths, slices));
    };
    add("full, both sleep", {writer({.sizes = {S, S, S}}, kBrim), reader(kAll)});
    add("full of one message, both sleep", {writer({.sizes = {S, S}}, kOne), reader(kAll)});
    add("full, a slice ends", {writer({.sizes = {S, S}}, kBrim), reader(kAll)}, 0, 1);
    add("two readers", {writer({.sizes = {S}}, kOne), reader(kAll), reader(kAll)});
    add("two writers", {writer({.sizes = {S}}, kOne), writer({.sizes = {S}}), reader(kAll)});
    add("joins while it is written",
        {writer({.sizes = {S, S}}, kBrim), reader({.start = Start::oldest, .joins = true})});
    add("joins at the newest while it is written",
        {writer({.sizes = {S, S}}, kBrim), reader({.start = Start::newest, .joins = true})});
    add("a reader leaves",
        {writer({.sizes = {S, S}}, kBrim), reader({.start = Start::oldest, .leaves_after = 1})});
    add("a reader dies", {writer({.sizes = {S, S}}, kBrim), mortal(reader(kAll))}, 1);
    add("a writer gives up waiting", {writer({.sizes = {S, S}, .gives_up = true}, kBrim), reader(kAll)});
    add("a writer gives up waiting, another does not",
        {writer({.sizes = {S}, .gives_up = true}, kOne), writer({.sizes = {S}}), reader(kAll)});
    add("a writer dies, another goes on",
        {mortal(writer({.sizes = {M}}, kOne)), writer({.sizes = {S}}), reader(kAll)}, 1);
    add("two readers die", {writer({.sizes = {S}}, kOne), mortal(reader(kAll)), mortal(reader(kAll))}, 2);
    add("a reader dies, its reaper dies",
        {mortal(writer({.sizes = {S}}, kOne)), writer({.sizes = {S}}), mortal(reader(kAll))}, 2);
    add("a reader joins and leaves, and dies of it",
        {writer({.sizes = {S, S}}, kBrim),
         mortal(reader({.start = Start::oldest, .joins = true, .leaves_after = 1}))},
        1);
    add("a reader in the way leaves, or dies of it",
        {writer({.sizes = {200, S}}, kBrim), mortal(reader({.start = Start::oldest, .leaves_after = 1}))}, 1);
    add("a reader waited for the topic", {writer({.sizes = {S, S}}, kBrim), reader(kWaited)});
    add("a reader waited for the topic, and dies",
        {writer({.sizes = {S, S}}, kBrim), mortal(reader(kWaited))}, 1);
    add("two readers waited for the topic",
        {writer({.sizes = {S}}, kOne), reader(kWaited), mortal(reader(kWaited))}, 1);
}

void add_work(std::vector<Case>& cases) {
    auto add = [&](const char* name, std::vector<Part> parts, int deaths = 0, int slices = 0) {
        cases.push_back(make(name, Contract::work, parts, deaths, slices));
    };
    const Works once{.looks = 1}, sleeps{};
    const Works returns{.has_first = true, .only_first = true, .gives_back = 1};
    const Works has_first{.looks = 1, .has_first = true}, gives_back{.looks = 1, .gives_back = 1};
    const Part sent = writer({}, {S}), sent_two = writer({}, {S, S}), full = writer({.sizes = {S}}, kOne);
    add("one worker, full, both sleep", {full, worker(sleeps)});
    add("a worker spins, sleeps and is woken", {writer({.sizes = {S}}), worker({.spins = true})});
    add("two workers look", {sent_two, worker(once), worker(once)});
    add("two workers, full", {full, worker(once), worker(once)});
    add("two workers sleep", {writer({.sizes = {S}}), worker(sleeps), worker(sleeps)});
    add("two workers sleep, two messages", {writer({.sizes = {S, S}}), worker(sleeps), worker(sleeps)});
    add("given back while the writer looks", {full, worker(sleeps), worker(returns)});
    add("given back and taken again while the writer looks",
        {full, worker({.has_first = true, .gives_back = 1})});
    add("given back while another passes it", {sent_two, worker(once), worker(gives_back)});
    add("given back to a worker that sleeps",
        {sent, worker(sleeps), worker({.has_first = true, .gives_back = 1})});
    add("joins while it is written", {full, worker({.looks = 1, .joins = true})});
    add("leaves with work to do", {sent_two, worker({.leaves_after = 1}), worker(once)});
    add("one wants only some, and passes the call on",
        {writer({.sizes = {S}}), worker({.odd_only = true}), worker(sleeps)});
    add("a worker dies", {sent, mortal(worker(once)), worker(sleeps)}, 1);
    add("a worker dies with a message that is in the way", {full, mortal(worker(has_first)), worker(sleeps)},
        1);
    add("a worker dies, another is never idle",
        {sent, mortal(worker(has_first)), worker({.looks = 1, .never_idle = true})}, 1);
    add("a worker dies as it gives back", {sent_two, mortal(worker(returns)), worker(once)}, 1);
    add("a worker dies as it passes what another gives back",
        {sent_two, mortal(worker(once)), worker(returns)}, 1);
    add("a worker dies, its reaper dies",
        {sent, mortal(worker(has_first)), mortal(worker(once)), worker(once)}, 2);
    add("removed while a worker sleeps",
        {writer({.sizes = {S}, .removes = true}), worker({.until_removed = true})});
    add("one is woken, takes a message and leaves the next",
        {writer({.sizes = {S, S}}), worker({.leaves_after = 1}), worker(sleeps)});
    add("one is woken, and its program stops it",
        {writer({.sizes = {S}}), worker({.stops = true}), worker(sleeps)});
}

// The last message of each kind: a writer drops messages into the table while a reader looks for them. No message is larger
// than a quarter of the ring, as on every topic with a table.
void add_kept(std::vector<Case>& cases) {
    const Reads last{.looks = 1, .kept = true}, last_at_the_end{.only_at_the_end = true, .kept = true};
    const Part newcomer = writer({.sizes = {S}, .joins = true, .takeover = true});
    const Topic one_kind{Contract::broadcast, 256, 1, "k"};
    // The first message is the only one of its kind, and the next one that is sent drops it.
    const Topic two_kinds{Contract::broadcast, 256, 2, "ab"};
    const std::vector<uint32_t> full{S, S, S, S, S};
    auto add = [&](const char* name, const Topic& opened, std::vector<Part> parts, int deaths = 0) {
        cases.push_back(make(name, opened, parts, deaths));
    };
    // A batch fills the ring: before its commit the table alone has the last message.
    add("kept while a reader looks", one_kind,
        {writer({.sizes = {S, S, S, S, S, S}, .batch = 5}, {S}), reader(last)});
    // Larger messages than such a topic has, so that a reader may look at each in the ring before the writer claims.
    add("an entry is rewritten while a reader looks", {Contract::broadcast, 128, 1, "k"},
        {writer({.sizes = {S}}, {S, S, S}), reader(last)});
    cases.back().stale_looks = 3;
    add("kept, of two kinds", two_kinds, {writer({.sizes = {S, S}}, full), reader(last)});
    add("the writer dies as it keeps", two_kinds, {mortal(writer({.sizes = {S, S}}, full)), reader(last)}, 1);
    add("the writer dies as it keeps, another comes, read at the end", two_kinds,
        {mortal(writer({.sizes = {S}}, full)), newcomer, reader(last_at_the_end)}, 1);
    add("the writer dies as it keeps, another comes", two_kinds,
        {mortal(writer({.sizes = {S}}, full)), newcomer, reader(last)}, 1);
}

// The topic is removed while others sleep on its words: none sleeps on past the end of its life.
void add_removal(std::vector<Case>& cases) {
    const Reads until_removed{.start = Start::oldest, .until_removed = true};
    const Sends remover{.sizes = {S}, .removes = true};
    auto add = [&](const char* name, Contract contract, std::vector<Part> parts, int deaths = 0) {
        cases.push_back(make(name, contract, parts, deaths));
    };
    add("removed while a reader sleeps", Contract::broadcast, {writer(remover), reader(until_removed)});
    add("removed while a reader looks", Contract::broadcast, {writer(remover), reader(kOnce)});
    add("removed while two readers sleep", Contract::broadcast,
        {writer(remover), reader(until_removed), reader(until_removed)});
    add("removed, the remover dies", Contract::broadcast, {mortal(writer(remover)), reader(until_removed)},
        1);
    add("removed while the reader sleeps", Contract::pipe, {writer(remover), reader(until_removed)});
    add("removed while a reader sleeps", Contract::bus, {writer(remover), reader(until_removed)});
    add("removed, the remover dies", Contract::reliable, {mortal(writer(remover)), reader(until_removed)}, 1);
}

// The topic gets its next life: another file, into which those who wait follow, and which they read from its beginning.
void add_next_life(std::vector<Case>& cases) {
    const Reads follows{.until_removed = true};
    const Works follows_as_worker{.until_removed = true};
    const Sends again{.removes = true, .again = {S}};
    auto add = [&](const char* name, Contract contract, std::vector<Part> parts, int deaths = 0,
                   bool persists = true) {
        Topic opened{contract, kRing};
        opened.persists = persists;
        cases.push_back(make(name, opened, parts, deaths));
    };
    add("a reader follows into the next life", Contract::broadcast, {writer(again), reader(follows)});
    add("a reader looks, and follows into the next life", Contract::broadcast,
        {writer(again, {S}), reader({.looks = 2, .start = Start::oldest})});
    add("a reader joins, and follows into the next life", Contract::broadcast,
        {writer(again), reader({.joins = true, .until_removed = true})});
    add("two readers follow into the next life", Contract::broadcast,
        {writer(again), reader(follows), reader(follows)});
    add("another creates the next life", Contract::broadcast,
        {writer({.removes = true}), writer({.sizes = {S}, .opens = true}), reader(follows)});
    add("the remover dies, another creates the next life", Contract::broadcast,
        {mortal(writer({.removes = true})), writer({.sizes = {S}, .opens = true}), reader(follows)}, 1);
    add("its creator dies, another creates it", Contract::broadcast,
        {mortal(writer({.opens = true, .first = true})), writer({.sizes = {S}, .opens = true}),
         reader({.joins = true})},
        1);
    add("the last to leave removes it, a reader comes, and it is created anew", Contract::broadcast,
        {writer({.leaves = true, .again = {S}}), reader({.joins = true})}, 0, false);
    add("the reader follows into the next life", Contract::pipe, {writer(again), reader(follows)});
    add("a reader follows into the next life", Contract::bus, {writer(again), reader(follows)});
    add("a reader follows into the next life", Contract::reliable, {writer(again), reader(follows)});
    add("gets its name while a reader waits for it, and is full", Contract::reliable,
        {writer({.sizes = {456, S}, .opens = true, .first = true}), reader({.joins = true})});
    add("a worker follows into the next life", Contract::work, {writer(again), worker(follows_as_worker)});
}

// Readers that wait for two topics at once.
void add_any(std::vector<Case>& cases) {
    auto add = [&](const char* name, Contract contract, std::vector<Part> parts, int deaths = 0,
                   int slices = 0) { cases.push_back(make(name, contract, parts, deaths, slices)); };
    const Reads both{.topics = 2, .start = Start::oldest, .until_removed = true};
    const Sends first{.sizes = {S}}, second{.sizes = {S}, .topic = 1};
    add("waits for two, one of them sends", Contract::broadcast, {writer(second), reader(both)});
    cases.back().stale_looks = 6;  // such a wait looks so often
    add("waits for two, both send", Contract::broadcast, {writer(first), writer(second), reader(both)});
    add("waits for two, a sleep is listed", Contract::broadcast, {writer(second), reader(both)}, 0, 1);
    add("waits for two, a writer dies", Contract::broadcast, {mortal(writer(second)), reader(both)}, 1, 1);
    add("waits for two, the other writer dies", Contract::broadcast, {mortal(writer(first)), reader(both)},
        1);
    add("waits for two, one is created", Contract::broadcast,
        {writer({.sizes = {S}, .topic = 1, .opens = true, .first = true}), reader(both)});
    add("waits for two, the creator of one dies", Contract::broadcast,
        {mortal(writer({.sizes = {S}, .topic = 1, .opens = true, .first = true})), reader(both)}, 1, 1);
    add("waits for two, one is removed", Contract::broadcast,
        {writer({.topic = 1, .removes = true}), reader(both)});
    add("waits for two, one gets its next life", Contract::broadcast,
        {writer({.topic = 1, .removes = true, .again = {S}}), reader(both)});
    add("waits for one and for the directory", Contract::broadcast,
        {writer({.topic = 1, .opens = true, .first = true}),
         reader({.topics = 2, .start = Start::oldest, .until_directory = true})});
    add("waits for two, both are full", Contract::reliable,
        {writer(first, kOne), writer(second, kOne), reader(both)});
    add("a worker waits for two", Contract::work, {writer(first), writer(second), worker({.topics = 2})});
    add("one waits for two, takes a message and leaves the next", Contract::work,
        {writer({.sizes = {S, S}}), worker({.topics = 2, .leaves_after = 1}), worker({})});
    add("one waits for two, and its program stops it", Contract::work,
        {writer(first), worker({.topics = 2, .stops = true}), worker({})});
    add("one dies, another waits for two", Contract::work,
        {writer({}, {S}), mortal(worker({.looks = 1})), worker({.topics = 2})}, 1);
}

// Where the kernel has no process-wide barrier, all fence instead.
void add_fallback(std::vector<Case>& cases) {
    auto add = [&](const char* name, Contract contract, std::vector<Part> parts) {
        cases.push_back(make(name, contract, parts));
        cases.back().fallback = true;
    };
    add("no kernel barrier: sleeps and is woken", Contract::broadcast,
        {writer({.sizes = {S, S}}), reader({})});
    add("no kernel barrier: taken over alive", Contract::broadcast,
        {writer({.sizes = {S, S}}), writer({.sizes = {S}, .joins = true, .takeover = true})});
    add("no kernel barrier: waits for two, one of them sends", Contract::broadcast,
        {writer({.sizes = {S}, .topic = 1}),
         reader({.topics = 2, .start = Start::oldest, .until_removed = true})});
    add("no kernel barrier: full, both sleep", Contract::pipe,
        {writer({.sizes = {S, S}}, kBrim), reader({})});
    add("no kernel barrier: borrows", Contract::bus,
        {writer({.sizes = {S, S}}, kBrim), reader({.looks = 1, .start = Start::oldest, .borrows = true})});
    add("no kernel barrier: a writer rests, another asks", Contract::bus,
        {writer({.sizes = {S}}, {S}), writer({.sizes = {S}})});
    add("no kernel barrier: joins while it is written", Contract::reliable,
        {writer({.sizes = {S, S}}, kBrim), reader({.start = Start::oldest, .joins = true})});
}

// Larger: docs/internals/testing.md says which of them were explored completely, and when.
bool takes_long(const Case& c) {
    std::string name = c.contract + ": " + c.name;
    for (const char* deep : {"broadcast: two sleep and are woken",
                             "broadcast: one that takes over dies, another takes over",
                             "broadcast: two sleep and are woken once",
                             "broadcast: a reader joins, and follows into the next life",
                             "broadcast: two readers follow into the next life",
                             "bus: a reader follows into the next life",
                             "reliable: a reader follows into the next life",
                             "work: a worker follows into the next life",
                             "reliable: gets its name while a reader waits for it, and is full",
                             "broadcast: another creates the next life",
                             "broadcast: the remover dies, another creates the next life",
                             "broadcast: its creator dies, another creates it",
                             "broadcast: waits for two, both send",
                             "broadcast: waits for two, the creator of one dies",
                             "broadcast: waits for two, one gets its next life",
                             "reliable: waits for two, both are full",
                             "work: a worker waits for two",
                             "work: one waits for two, takes a message and leaves the next",
                             "work: one waits for two, and its program stops it",
                             "work: one is woken, takes a message and leaves the next",
                             "work: one is woken, and its program stops it",
                             "reliable: two readers",
                             "reliable: two readers die",
                             "broadcast: taken over alive, read",
                             "broadcast: removed while two readers sleep",
                             "broadcast: the writer dies, another comes",
                             "broadcast: the writer dies as it keeps, another comes",
                             "broadcast: two writers die, another comes, read at the end",
                             "pipe: the writer dies, another comes",
                             "pipe: the reader dies, another comes",
                             "bus: a writer goes on, two take the idle turn",
                             "bus: a writer leaves while another takes the idle turn",
                             "bus: a writer rests, and asks again",
                             "bus: a borrower joins and leaves, and dies of it",
                             "reliable: a reader joins and leaves, and dies of it",
                             "reliable: joins at the newest while it is written",
                             "work: given back to a worker that sleeps",
                             "pipe: its reader waited for the topic, or dies of it, another comes",
                             "pipe: two writers die, another comes, read at the end",
                             "bus: two writers, borrows",
                             "bus: two borrowers",
                             "bus: two writers, lapped",
                             "bus: three writers",
                             "bus: a writer dies at rest while two ask",
                             "bus: a borrower dies, its reaper dies",
                             "reliable: two writers",
                             "reliable: a writer gives up waiting, another does not",
                             "bus: a writer leaves, or dies of it",
                             "bus: a writer dies, another goes on",
                             "reliable: a writer dies, another goes on",
                             "reliable: a reader dies, its reaper dies",
                             "reliable: two readers waited for the topic",
                             "work: two workers, full",
                             "pipe: full, both sleep",
                             "work: two workers sleep",
                             "work: two workers sleep, two messages",
                             "work: given back while the writer looks",
                             "work: given back and taken again while the writer looks",
                             "work: one wants only some, and passes the call on",
                             "work: a worker dies with a message that is in the way"})
        if (name == deep) return true;
    return false;
}

}  // namespace

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    add_broadcast(cases);
    add_pipe(cases);
    add_bus(cases);
    add_reliable(cases);
    add_work(cases);
    add_kept(cases);
    add_removal(cases);
    add_next_life(cases);
    add_any(cases);
    add_fallback(cases);
    for (Case& c : cases) c.deep = takes_long(c);
    return cases;
}

}  // namespace ringmain::explore
