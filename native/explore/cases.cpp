#include "cases.hpp"

#include "actors.hpp"

namespace ringmain::explore {

namespace {

constexpr uint64_t kRing = 512;  // stride: 64 bytes
// Payload sizes. Two big ones nearly fill the ring before the story begins, so that it is about the wrap.
constexpr uint32_t S = 8, M = 40, L = 200;

const char* name_of(Contract c) {
    switch (c) {
        case Contract::broadcast: return "broadcast";
        case Contract::pipe: return "pipe";
        case Contract::bus: return "bus";
        default: return "reliable";
    }
}

// The parts of a case: who is there, in the order of their seats.
struct Part {
    std::string name;
    bool writes;
    Sends sends;
    Reads reads;
    std::vector<uint32_t> before;
    bool mortal = false;
};

Part writer(Sends sends, std::vector<uint32_t> before = {}) { return {"writer", true, sends, {}, before}; }
Part reader(Reads reads) { return {"reader", false, {}, reads, {}}; }
Part mortal(Part part) {
    part.mortal = true;
    return part;
}

Case make(std::string name, Contract contract, std::vector<Part> parts, int deaths = 0, uint64_t ring = kRing) {
    Case c;
    c.name = name;
    c.contract = name_of(contract);
    c.deaths = deaths;
    for (size_t i = 0; i < parts.size(); ++i) {
        const Part& part = parts[i];
        c.names.push_back(part.name + " " + std::to_string(i));
        if (part.mortal) c.mortal.push_back(static_cast<int>(i));
        if (part.writes)
            c.actors.push_back([part] { write(part.sends); });
        else
            c.actors.push_back([part] { read(part.reads); });
    }
    c.setup = [contract, parts, ring] {
        open_topic(contract, ring);
        // Readers that are there from the start see all that was sent before them, unless they start at the latest.
        for (bool writers : {true, false})
            for (size_t i = 0; i < parts.size(); ++i) {
                const Part& part = parts[i];
                if (part.writes != writers || (part.writes ? part.sends.joins : part.reads.joins)) continue;
                if (part.writes)
                    seat_writer(static_cast<int>(i), part.before);
                else
                    seat_reader(static_cast<int>(i), part.reads);
            }
    };
    return c;
}

Case deep(Case c) {
    c.deep = true;
    return c;
}

void broadcast(std::vector<Case>& cases) {
    auto B = Contract::broadcast;
    std::vector<uint32_t> full{L, L};
    Reads oldest{.looks = 4, .start = Start::oldest};
    Reads latest{.looks = 3, .start = Start::oldest, .on_lap = Start::latest};
    cases.push_back(make("lapped, goes on at the oldest", B, {writer({.sizes = {S, S, M, S}}, full), reader(oldest)}));
    cases.push_back(make("lapped, goes on at the latest", B, {writer({.sizes = {S, S, M, S}}, full), reader(latest)}));
    cases.push_back(make("two readers", B, {writer({.sizes = {S, S, S}}, full), reader({.looks = 2, .start = Start::oldest}),
                                            reader({.looks = 2, .start = Start::oldest})}));
    cases.push_back(make("sleeps and is woken", B, {writer({.sizes = {S, S}}), reader({})}));
    cases.push_back(make("two sleep and are woken", B, {writer({.sizes = {S, S}}), reader({}), reader({})}));
    cases.push_back(make("conflates", B, {writer({.sizes = {S, S, S}}), reader({.looks = 3, .conflates = true})}));
    cases.push_back(make("joins while it is written", B,
                         {writer({.sizes = {S, S, S}}, full), reader({.looks = 2, .start = Start::oldest, .joins = true})}));
    cases.push_back(make("a batch, and one dropped", B,
                         {writer({.sizes = {S, S, S}, .batch = true, .drops_first = false}, full), reader(oldest)}));
    cases.push_back(make("sealed and dropped", B, {writer({.sizes = {S, S, S}, .drops_first = true}), reader({.looks = 3})}));
    cases.push_back(make("the writer dies, another comes", B,
                         {mortal(writer({.sizes = {S, S}}, full)), writer({.sizes = {M, S}, .joins = true, .takeover = true}),
                          reader({.looks = 2, .start = Start::oldest})}, 1));
    cases.push_back(make("taken over alive", B,
                         {writer({.sizes = {S, S}}), writer({.sizes = {S}, .joins = true, .takeover = true})}));
    cases.push_back(make("a taker dies, another takes over", B,
                         {writer({.sizes = {S}}), mortal(writer({.sizes = {S}, .joins = true, .takeover = true})),
                          writer({.sizes = {S}, .joins = true, .takeover = true})}, 1));
}

void bus(std::vector<Case>& cases) {
    auto B = Contract::bus;
    std::vector<uint32_t> full{L, L};
    cases.push_back(make("lapped", B, {writer({.sizes = {S, S, S}}, full), reader({.looks = 3, .start = Start::oldest})}));
    cases.push_back(make("borrows", B, {writer({.sizes = {S, S, S}}, full),
                                        reader({.looks = 2, .start = Start::oldest, .borrows = true})}));
    cases.push_back(make("two writers", B, {writer({.sizes = {S, S}}, full), writer({.sizes = {S}}),
                                            reader({.looks = 2, .start = Start::oldest})}));
    cases.push_back(make("two writers, borrows", B,
                         {writer({.sizes = {S, S}}, full), writer({.sizes = {S}}),
                          reader({.looks = 1, .start = Start::oldest, .borrows = true})}));
    cases.push_back(make("a borrower dies", B,
                         {writer({.sizes = {S, S, S}}, full),
                          mortal(reader({.looks = 2, .start = Start::oldest, .borrows = true}))}, 1));
    cases.push_back(make("a writer dies, another goes on", B,
                         {mortal(writer({.sizes = {S, S}}, full)), writer({.sizes = {M, S}}),
                          reader({.looks = 1, .start = Start::oldest, .borrows = true})}, 1));
    cases.push_back(make("three writers", B, {writer({.sizes = {S}}), writer({.sizes = {S}}), writer({.sizes = {S}})}));
    cases.push_back(make("a borrower dies, its reaper dies", B,
                         {mortal(writer({.sizes = {S, S}}, full)), writer({.sizes = {S, S}}),
                          mortal(reader({.looks = 1, .start = Start::oldest, .borrows = true}))}, 2));
    cases.push_back(make("two borrowers", B, {writer({.sizes = {S, S}}, full),
                                              reader({.looks = 1, .start = Start::oldest, .borrows = true}),
                                              reader({.looks = 1, .start = Start::oldest, .borrows = true})}));
}

void pipe(std::vector<Case>& cases) {
    auto P = Contract::pipe;
    cases.push_back(make("full, both sleep", P, {reader({}), writer({.sizes = {L, L, S, S, S}})}));
    cases.push_back(make("the writer dies, another comes", P,
                         {reader({}), mortal(writer({.sizes = {L, L, S}})), writer({.sizes = {S, S}, .joins = true, .takeover = true})}, 1));
}

void reliable(std::vector<Case>& cases) {
    auto R = Contract::reliable;
    std::vector<uint32_t> full{L, L};
    Reads all{.start = Start::oldest};
    cases.push_back(make("full, both sleep", R, {writer({.sizes = {S, S, S}}, full), reader(all)}));
    cases.push_back(make("two readers", R, {writer({.sizes = {S, S}}, full), reader(all), reader(all)}));
    cases.push_back(make("two writers", R, {writer({.sizes = {S, S}}, full), writer({.sizes = {S}}), reader(all)}));
    cases.push_back(make("joins while it is written", R,
                         {writer({.sizes = {S, S, S}}, full), reader({.start = Start::oldest, .joins = true})}));
    cases.push_back(make("a reader dies", R, {writer({.sizes = {S, S, S}}, full), mortal(reader(all))}, 1));
    cases.push_back(make("a reader leaves", R,
                         {writer({.sizes = {S, S, S}}, full), reader({.start = Start::oldest, .leaves_after = 1})}));
    cases.push_back(make("a writer dies, another goes on", R,
                         {mortal(writer({.sizes = {S, S}}, full)), writer({.sizes = {S}}), reader(all)}, 1));
    cases.push_back(make("a writer gives up waiting", R,
                         {writer({.sizes = {S, S, S}, .gives_up = true}, full), writer({.sizes = {S}}), reader(all)}));
}

}  // namespace

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    broadcast(cases);
    pipe(cases);
    bus(cases);
    reliable(cases);
    return cases;
}

}  // namespace ringmain::explore
