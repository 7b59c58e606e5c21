// The memory: every word has the history of its stores, and a load may see any that its actor has not passed yet.
//
// The model is the operational reading of C++20 without load buffering: per location a modification order, per actor
// the point it has come to in each; a release store carries what its actor knows, an acquire load learns it, a
// read-modify-write takes the newest and passes on what the one before carried, fences work on the loads and stores
// around them, and only seq_cst *fences* meet in one total order. A seq_cst access is taken for acquire and release
// only, which allows more than C++ does: what holds here holds there.
//
// What the search need not interleave. A store that is ordered with all other stores to its word may come at once:
// an actor that should still see the older value can, through a stale load. A load that is ordered with all
// stores of others can see only one version, whenever it comes. Which accesses are not ordered is found on the way,
// with the epochs of a race detector: a surprise is remembered and starts the search again, so the search that
// ends has met none. Two plain stores that are not ordered are themselves an error: two writers at once.
//
// The process-wide barrier orders all that came before it with all that comes after it, and it may come at any time: so once a
// case uses it, stores to control words that others look at are interleaved, ordered or not. Message bytes are not: they
// are read only behind such a word.
#include <algorithm>
#include <bit>
#include <cstring>

#include "explore/model.hpp"
#include "format/layout.hpp"

namespace ringmain::explore {

namespace {

constexpr size_t kGranule = 4;
constexpr size_t kMaxVersions = 96;
constexpr size_t kKeptOffset = kRosterOffset + kSlots * sizeof(Slot);
constexpr size_t kControlBytes = kKeptOffset + kept_bytes(kMaxKeptKinds, kKeptEntryBytes);

constexpr size_t kFileBytes = align_up(kControlBytes + 2 * kMaxCapacity, 4096);

alignas(4096) std::byte memory[kFiles * kFileBytes];
size_t capacity = kMaxCapacity;

struct Version {
    uint64_t value;
    Knowledge carried;
    int by;
    bool carries;  // more than itself
};

struct Location {
    // For the whole case: who was ever seen to do what.
    uint8_t writers = 0;     // bit set of actors
    uint8_t lookers = 0;     // those who load it, or update it
    uint8_t racing = 0;      // those whose loads are not ordered with the stores of others
    bool contended = false;  // its stores are not ordered
    // No actor ever reads what another stored here: it makes no difference, nor does a death before it.
    bool idle() const {
        return lookers == 0 || std::has_single_bit(static_cast<unsigned>(lookers | writers));
    }

    // For this execution.
    std::array<uint8_t, kMaxActors> looked_in{};  // 1 + the epoch of each actor's last load
    std::array<Version, kMaxVersions> history;
    size_t count = 0;
    const Version& newest() const { return history[count - 1]; }
};

struct Mind {
    Knowledge current, acquirable, released;
    std::array<uint8_t, kMaxLocations> stale_looks;
    size_t last_looked_at = 0;
    uint64_t last_seen = 0;     // the value it found there
    bool has_released = false;  // a release fence was passed
};

Location locations[kMaxLocations];  // the first ones stand for the actors' epochs
size_t location_count;
uint8_t location_at[sizeof memory / kGranule];  // 1 + index
const void* address_of[kMaxLocations];
uint8_t fencers;  // actors that were seen to use a seq_cst fence
bool barriers;    // an actor was seen to use the process-wide barrier
Mind minds[kMaxActors];
Knowledge total;   // what has passed through seq_cst fences
Knowledge passed;  // by every actor that is left; set by memory_hash()

size_t offset_of(const void* address) {
    auto offset = static_cast<size_t>(static_cast<const std::byte*>(address) - memory);
    size_t within = offset % kFileBytes;
    if (within < kControlBytes) return offset;
    return offset - within + kControlBytes + (within - kControlBytes) % capacity;
}

uint64_t raw(const void* address, size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, memory + offset_of(address), bytes);
    return value;
}

size_t locate(const void* address, size_t bytes) {
    size_t offset = offset_of(address);
    uint8_t& entry = location_at[offset / kGranule];
    if (entry == 0) {
        if (location_count == kMaxLocations) give_up("the case has too many words");
        entry = static_cast<uint8_t>(++location_count);
        locations_in_use = align_up(location_count, 16);
        address_of[entry - 1] = memory + offset;
    }
    Location& l = locations[entry - 1];
    if (l.count == 0) l.history[l.count++] = {raw(address, bytes), {}, kNoActor, false};
    return entry - size_t{1};
}

bool acquires(std::memory_order o) {
    return o == std::memory_order_acquire || o == std::memory_order_acq_rel || o == std::memory_order_seq_cst;
}
bool releases(std::memory_order o) {
    return o == std::memory_order_release || o == std::memory_order_acq_rel || o == std::memory_order_seq_cst;
}
const char* text(std::memory_order o) {
    switch (o) {
        case std::memory_order_relaxed:
            return "relaxed";
        case std::memory_order_acquire:
            return "acquire";
        case std::memory_order_release:
            return "release";
        case std::memory_order_acq_rel:
            return "acq_rel";
        default:
            return "seq_cst";
    }
}

uint8_t bit(int actor) { return static_cast<uint8_t>(1u << actor); }

bool is_left(int actor) { return life(actor) != Life::done && life(actor) != Life::dead; }

// Those of them, besides the actor itself, that may still do something.
uint8_t others(uint8_t actors) {
    uint8_t left = 0;
    for (int i = 0; i < actor_count(); ++i)
        if (i != self() && is_left(i)) left |= bit(i);
    return left & actors;
}

// An actor's epoch ends whenever it releases. It is kept with the locations: to know an actor's epoch is to come
// after all that the actor did in it.
size_t epoch_of(int actor) { return static_cast<size_t>(actor); }

void end_epoch(Mind& m, int actor) {
    if (++m.current.at[epoch_of(actor)] == 255) give_up("an actor of the case releases too often");
    m.acquirable.at[epoch_of(actor)] = m.current.at[epoch_of(actor)];
}

void learnt(bool surprise) {
    if (surprise) start_again();
}

bool knows_newest(size_t where) {
    return minds[self()].current.at[where] + size_t{1} == locations[where].count;
}

void about_to_load(size_t where) {
    Location& l = locations[where];
    if (((l.racing & bit(self())) && others(l.writers)) || plain()) reach();
    bool surprise = !(l.lookers & bit(self()));
    l.lookers |= bit(self());
    if (!(l.racing & bit(self())) && !knows_newest(where)) {
        l.racing |= bit(self());
        surprise = true;
    }
    learnt(surprise);
    l.looked_in[static_cast<size_t>(self())] =
        static_cast<uint8_t>(1 + minds[self()].current.at[epoch_of(self())]);
}

bool is_control(const void* address) { return offset_in_file(address) < kControlBytes; }

void about_to_store(size_t where, bool updates) {
    Location& l = locations[where];
    bool heard = barriers && is_control(address_of[where]) && others(l.lookers);
    if ((l.contended && others(l.writers)) || heard || plain()) reach();
    if (!l.idle()) dies_here();
    bool surprise = !(l.writers & bit(self())) || (updates && !(l.lookers & bit(self())));
    l.writers |= bit(self());
    if (updates) l.lookers |= bit(self());
    if (!l.contended && !knows_newest(where)) {
        if (!updates)
            fail("two writers at once: " + name_of(address_of[where]) + " is stored to in no order");
        surprise = l.contended = true;
    }
    for (int i = 0; i < actor_count(); ++i) {
        uint8_t looked = l.looked_in[static_cast<size_t>(i)];
        if (i == self() || (l.racing & bit(i)) || looked == 0) continue;
        if (minds[self()].current.at[epoch_of(i)] + 1 >= looked) continue;
        l.racing |= bit(i);
        surprise = true;
    }
    learnt(surprise);
}

void see(size_t where, const Version& version, size_t at, bool acquire) {
    Mind& m = minds[self()];
    m.current.at[where] = std::max(m.current.at[where], static_cast<uint8_t>(at));
    m.acquirable.at[where] = std::max(m.acquirable.at[where], static_cast<uint8_t>(at));
    if (!version.carries) return;
    m.acquirable.join(version.carried);
    if (acquire) m.current.join(version.carried);
}

void append(size_t where, uint64_t value, bool release, const Knowledge* passed_on) {
    Location& l = locations[where];
    Mind& m = minds[self()];
    auto at = static_cast<uint8_t>(l.count);
    if (l.count == kMaxVersions) give_up("the case has too many stores to one word");
    m.current.at[where] = m.acquirable.at[where] = at;
    Version& v = l.history[l.count++];
    v.value = value;
    v.carried = release ? m.current : m.released;
    v.by = self();
    v.carries = release || m.has_released || passed_on;
    v.carried.at[where] = at;
    if (passed_on) v.carried.join(*passed_on);
    if (release) end_epoch(m, self());
    if (offset_in_file(address_of[where]) < kHeaderBytes) check_words(file_at(address_of[where]));
    kernel_notices(where);
}

// Which versions can be seen. Of several with one value the oldest that carries least is enough: who knows less can do
// all that who knows more can.
int visible(size_t where, uint8_t (&options)[kMaxVersions]) {
    Location& l = locations[where];
    Mind& m = minds[self()];
    size_t newest = l.count - 1;
    int count = 0;
    bool stale_allowed = m.stale_looks[where] < stale_looks();
    for (size_t at = newest + 1; at-- > m.current.at[where];) {
        const Version& v = l.history[at];
        bool covered = false;
        for (int i = 0; i < count; ++i) {
            const Version& other = l.history[options[i]];
            if (other.value == v.value && v.carried.within(other.carried)) {
                options[i] = static_cast<uint8_t>(at);
                covered = true;
                break;
            }
        }
        if (covered) continue;
        if (at != newest && !stale_allowed) continue;
        options[count++] = static_cast<uint8_t>(at);
    }
    return count;
}

std::string describe(const char* what, size_t where, uint64_t value, std::memory_order o,
                     const char* more = "") {
    return std::string(what) + " " + name_of(address_of[where]) + " = " + std::to_string(value) + "  " +
           text(o) + more;
}

}  // namespace

size_t locations_in_use = kMaxLocations;

std::byte* control(int file) { return memory + static_cast<size_t>(file) * kFileBytes; }
std::byte* kept(int file) { return control(file) + kKeptOffset; }
std::byte* data(int file) { return control(file) + kControlBytes; }
size_t offset_in_file(const void* address) { return offset_of(address) % kFileBytes; }
int file_at(const void* address) { return static_cast<int>(offset_of(address) / kFileBytes); }
void set_capacity(size_t capacity_bytes) { capacity = capacity_bytes; }

void memory_forget() {
    for (Location& l : locations) {
        l.writers = l.lookers = l.racing = 0;
        l.contended = false;
        l.count = 0;
        l.looked_in = {};
    }
    location_count = kMaxActors;
    locations_in_use = align_up(location_count, 16);
    std::memset(location_at, 0, sizeof location_at);
    fencers = 0;
    barriers = false;
}

void memory_reset() {
    std::memset(memory, 0, sizeof memory);
    for (size_t i = 0; i < location_count; ++i) locations[i].count = 0, locations[i].looked_in = {};
    for (int i = 0; i < kMaxActors; ++i) {
        minds[i] = {};
        end_epoch(minds[i], i);  // the first epoch is 1: no other actor knows it yet
    }
    total = {};
}

// What every actor that is left has passed cannot be seen again: it is no part of the state, and positions in the
// histories count from there. So two ways to the same situation meet, however much happened on them.
uint64_t memory_hash() {
    passed.at.fill(255);
    for (int i = 0; i < actor_count(); ++i)
        if (is_left(i))
            for (size_t l = 0; l < locations_in_use; ++l)
                passed.at[l] = std::min(passed.at[l], minds[i].current.at[l]);
    for (size_t l = kMaxActors; l < location_count; ++l)
        if (locations[l].idle()) passed.at[l] = 255;
    uint64_t hash = hash_ahead(total);
    for (int i = 0; i < actor_count(); ++i) {
        if (!is_left(i)) continue;
        const Mind& m = minds[i];
        hash = mix(hash, mix(hash_ahead(m.current), mix(hash_ahead(m.acquirable), hash_ahead(m.released))));
        hash = mix(hash, hash_bytes(m.stale_looks.data(), locations_in_use));
    }
    for (size_t where = kMaxActors; where < location_count; ++where) {
        const Location& l = locations[where];
        for (size_t at = passed.at[where]; at < l.count; ++at) {
            const Version& v = l.history[at];
            hash +=
                mix(mix(where * 256 + at - passed.at[where], v.value), v.carries ? hash_ahead(v.carried) : 0);
        }
        for (int i = 0; i < actor_count(); ++i) {
            int looked = l.looked_in[static_cast<size_t>(i)] - 1 - passed.at[epoch_of(i)];
            if (looked >= 0 && !(l.racing & bit(i)))
                hash += mix(where * 256 + static_cast<size_t>(i), 500 + looked);
        }
    }
    return hash;
}

uint64_t hash_ahead(const Knowledge& k) {
    Knowledge ahead;
    for (size_t i = 0; i < locations_in_use; ++i)
        ahead.at[i] = k.at[i] > passed.at[i] ? k.at[i] - passed.at[i] : 0;
    return ahead.hash();
}

uint64_t latest(const void* address, size_t bytes) {
    uint8_t entry = location_at[offset_of(address) / kGranule];
    if (entry == 0 || locations[entry - 1].count == 0) return raw(address, bytes);
    return locations[entry - 1].newest().value;
}

Knowledge pass_on(int actor) {
    Knowledge all = minds[actor].current;
    end_epoch(minds[actor], actor);
    return all;
}
void learn(int actor, const Knowledge& what) {
    minds[actor].current.join(what);
    minds[actor].acquirable.join(what);
}

uint64_t load(const void* address, size_t bytes, std::memory_order order) {
    if (self() == kNoActor) return raw(address, bytes);
    size_t where = locate(address, bytes);
    Location& l = locations[where];
    count_step();
    about_to_load(where);
    uint8_t options[kMaxVersions];
    size_t at = options[choose(visible(where, options))];
    const Version& v = l.history[at];
    bool stale = v.value != l.newest().value;
    minds[self()].last_looked_at = where;
    minds[self()].last_seen = v.value;
    if (stale) ++minds[self()].stale_looks[where];
    see(where, v, at, acquires(order));
    if (tracing()) record(describe("load", where, v.value, order, stale ? "  (stale)" : ""));
    observe(v.value);
    return v.value;
}

void store(void* address, size_t bytes, uint64_t value, std::memory_order order) {
    if (self() == kNoActor) {
        std::memcpy(memory + offset_of(address), &value, bytes);
        return;
    }
    size_t where = locate(address, bytes);
    count_step();
    about_to_store(where, false);
    if (tracing()) record(describe("store", where, value, order));
    append(where, value, releases(order), nullptr);
    observe(0);
}

uint64_t update(void* address, size_t bytes, Update how, uint64_t operand, std::memory_order order) {
    auto result = [&](uint64_t old) {
        return how == Update::exchange ? operand : how == Update::bit_or ? old | operand : old + operand;
    };
    if (self() == kNoActor) {
        uint64_t old = raw(address, bytes), value = result(old);
        std::memcpy(memory + offset_of(address), &value, bytes);
        return old;
    }
    size_t where = locate(address, bytes);
    Location& l = locations[where];
    count_step();
    about_to_store(where, true);
    Version old = l.newest();
    see(where, old, l.count - 1, acquires(order));
    if (tracing())
        record(describe("update", where, result(old.value), order,
                        (", was " + std::to_string(old.value)).c_str()));
    append(where, result(old.value), releases(order), &old.carried);
    observe(old.value);
    return old.value;
}

bool compare_exchange(void* address, size_t bytes, uint64_t& expected, uint64_t desired,
                      std::memory_order order) {
    if (self() == kNoActor) {
        uint64_t old = raw(address, bytes);
        bool done = old == expected;
        if (done) std::memcpy(memory + offset_of(address), &desired, bytes);
        expected = old;
        return done;
    }
    size_t where = locate(address, bytes);
    Location& l = locations[where];
    count_step();
    about_to_store(where, true);
    // A failed exchange is a load, and may be stale; one that succeeds takes the newest.
    uint8_t visible_ones[kMaxVersions], options[kMaxVersions];
    int all = visible(where, visible_ones), count = 0;
    size_t newest = l.count - 1;
    if (l.history[newest].value == expected) options[count++] = static_cast<uint8_t>(newest);
    for (int i = 0; i < all; ++i)
        if (l.history[visible_ones[i]].value != expected) options[count++] = visible_ones[i];
    size_t at = options[choose(count)];
    Version old = l.history[at];
    bool done = old.value == expected;
    if (!done && at != newest) ++minds[self()].stale_looks[where];
    see(where, old, at, done && acquires(order));
    if (tracing()) record(describe(done ? "swap" : "swap fails", where, done ? desired : old.value, order));
    if (done) append(where, desired, releases(order), &old.carried);
    expected = old.value;
    observe(mix(old.value, done));
    return done;
}

void fence(std::memory_order order) {
    if (self() == kNoActor) return;
    count_step();
    if (order == std::memory_order_seq_cst) {
        if (!(fencers & bit(self()))) {
            fencers |= bit(self());
            start_again();
        }
        if (others(fencers)) reach();
    }
    Mind& m = minds[self()];
    if (tracing()) record(std::string("fence  ") + text(order));
    if (acquires(order)) m.current = m.acquirable;
    if (order == std::memory_order_seq_cst) {
        m.current.join(total);
        m.acquirable = total = m.current;
    }
    if (releases(order)) {
        m.released = m.current;
        m.has_released = true;
        end_epoch(m, self());
    }
    observe(1);
}

void barrier_for_all() {
    if (!barriers) {
        barriers = true;
        start_again();
    }
    // Who has looked where is not learnt from a barrier, which might as well have come earlier: such a look still races.
    auto without_epochs = [](Knowledge knows, const Knowledge& before) {
        for (int i = 0; i < actor_count(); ++i) knows.at[epoch_of(i)] = before.at[epoch_of(i)];
        return knows;
    };
    Knowledge before = total;
    for (int i = 0; i < actor_count(); ++i) total.join(minds[i].acquirable);
    total = without_epochs(total, before);
    for (int i = 0; i < actor_count(); ++i) {
        minds[i].current = without_epochs(total, minds[i].current);
        minds[i].acquirable = without_epochs(total, minds[i].acquirable);
        minds[i].released = minds[i].current;
        minds[i].has_released = true;
        end_epoch(minds[i], i);
    }
}

void compared_by_kernel(const void* address) {
    Location& l = locations[locate(address, 4)];
    bool surprise = !l.contended || !(l.writers & bit(self()));
    l.contended = true;
    l.writers |= bit(self());
    learnt(surprise);
}

size_t last_looked_at(int actor) { return minds[actor].last_looked_at; }

// Compared is what the actor saw, not what it knows: a barrier of another may have shown it a store since, and it has not
// looked at that yet.
bool look_again(int actor, size_t where) {
    const Location& l = locations[where];
    if (l.newest().value == minds[actor].last_seen) return false;
    minds[actor].current.at[where] = minds[actor].acquirable.at[where] = static_cast<uint8_t>(l.count - 1);
    return true;
}

void refresh(int actor) {
    for (size_t i = 0; i < location_count; ++i)
        if (locations[i].count != 0)
            minds[actor].current.at[i] = static_cast<uint8_t>(locations[i].count - 1);
    minds[actor].acquirable.join(minds[actor].current);
}

void forget_stale_looks() { minds[self()].stale_looks = {}; }

// Names of participants and the like take no part in the rule: only message bytes, and those of the table, are modelled, word by
// word.
static bool is_message(const std::byte* p) {
    return p >= memory && p < memory + sizeof memory && offset_in_file(p) >= kKeptOffset;
}

void copy_in(std::byte* shared, const void* from, size_t size) {
    if (!is_message(shared)) {
        std::memcpy(shared, from, size);
        return;
    }
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = 0;
        std::memcpy(&word, static_cast<const std::byte*>(from) + at, std::min<size_t>(8, size - at));
        store(shared + at, 8, word, std::memory_order_relaxed);
    }
}

void copy_out(void* to, const std::byte* shared, size_t size) {
    if (!is_message(shared)) {
        std::memcpy(to, shared, size);
        return;
    }
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = load(shared + at, 8, std::memory_order_relaxed);
        std::memcpy(static_cast<std::byte*>(to) + at, &word, std::min<size_t>(8, size - at));
    }
}

void crash_point(const char* label) {
    if (tracing()) record(std::string("[") + label + "]");
}

static std::string name_in_file(size_t offset) {
    if (offset >= kControlBytes) return "data[" + std::to_string(offset - kControlBytes) + "]";
    if (offset >= kKeptOffset) return "kept[" + std::to_string(offset - kKeptOffset) + "]";
    auto named = [&](size_t at, std::initializer_list<std::pair<size_t, const char*>> fields) -> const char* {
        for (auto& [o, n] : fields)
            if (o == at) return n;
        return "?";
    };
    if (offset < kRosterOffset)
        return named(offset, {{offsetof(Header, claim), "claim"},
                              {offsetof(Header, tail), "tail"},
                              {offsetof(Header, commit), "commit"},
                              {offsetof(Header, newest), "newest"},
                              {offsetof(Header, turn), "turn"},
                              {offsetof(Header, last_ticket), "last_ticket"},
                              {offsetof(Header, retired), "retired"},
                              {offsetof(Header, slots_used), "slots_used"},
                              {offsetof(Header, membership), "membership"},
                              {offsetof(Header, roster_pid), "roster_pid"},
                              {offsetof(Header, roster_pid_namespace), "roster_pid_namespace"},
                              {offsetof(Header, bell), "bell"},
                              {offsetof(Header, borrowing), "borrowing"},

                              {offsetof(Header, work_bell), "work_bell"},
                              {offsetof(Header, work_idle), "work_idle"},
                              {offsetof(Header, returned), "returned"}});
    size_t slot = (offset - kRosterOffset) / sizeof(Slot), at = (offset - kRosterOffset) % sizeof(Slot);
    return "slot " + std::to_string(slot) + " " +
           named(at, {{offsetof(Slot, state), "state"},
                      {offsetof(Slot, role), "role"},
                      {offsetof(Slot, pid), "pid"},
                      {offsetof(Slot, uid), "uid"},
                      {offsetof(Slot, generation), "generation"},
                      {offsetof(Slot, joined_ns), "joined_ns"},
                      {offsetof(Slot, pid_namespace), "pid_namespace"},
                      {offsetof(Slot, started_ticks), "started_ticks"},
                      {offsetof(Slot, hold), "hold"},
                      {offsetof(Slot, position), "position"},
                      {offsetof(Slot, sequence), "sequence"},
                      {offsetof(Slot, messages), "messages"},
                      {offsetof(Slot, bytes), "bytes"},
                      {offsetof(Slot, lost), "lost"},
                      {offsetof(Slot, busy), "busy"},
                      {offsetof(Slot, waits_for), "waits_for"},
                      {offsetof(Slot, awaited), "awaited"},

                      {offsetof(Slot, taken_from), "taken_from"},
                      {offsetof(Slot, taken_until), "taken_until"},
                      {offsetof(Slot, taken_ns), "taken_ns"},
                      {offsetof(Slot, redelivered), "redelivered"}});
}

std::string name_of(const void* address) {
    int file = file_at(address);
    return name_in_file(offset_in_file(address)) + (file ? " of file " + std::to_string(file) : "");
}

}  // namespace ringmain::explore
