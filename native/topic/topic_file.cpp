#include "topic/topic_file.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/lab.hpp"

namespace ringmain {

namespace {

[[noreturn]] void fail(Fault fault, std::string text) { throw Failure{fault, std::move(text)}; }

[[noreturn]] void fail_errno(const std::string& what, int error = errno) { throw refused(what, error); }

uint64_t page_bytes() {
    static const uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

}  // namespace

// A power of two, so that position & (capacity - 1) is the offset, and whole pages, so that it can be mirrored.
uint64_t round_capacity(uint64_t capacity_bytes) {
    return std::bit_ceil(capacity_bytes < page_bytes() ? page_bytes() : capacity_bytes);
}

// ---------------------------------------------------------------------------------------------- topic file

// All of this process, for the fork handler. Under descriptors_mutex.
static TopicFile* first_topic_file = nullptr;

void TopicFile::note() {
    std::lock_guard lock(descriptors_mutex());
    next_ = first_topic_file;
    if (next_) next_->previous_ = this;
    first_topic_file = this;
}

void TopicFile::mark_all_forked() {
    for (TopicFile* s = first_topic_file; s; s = s->next_) {
        s->forked.store(true, std::memory_order_relaxed);
        s->slot_lock_.forget();
    }
}

TopicFile::~TopicFile() {
    {
        std::lock_guard lock(descriptors_mutex());
        if (previous_) previous_->next_ = next_;
        if (next_) next_->previous_ = previous_;
        if (first_topic_file == this) first_topic_file = next_;
    }
    if (area_) munmap(area_, area_bytes_);
    if (control_copied_)
        std::free(control_);
    else if (control_)
        munmap(control_, control_bytes_);
}

PinnedDescriptor TopicFile::fd() const { return file_->pin(topic); }

PinnedDescriptor TopicFile::intact_fd() const {
    try {
        return fd();
    } catch (const Failure&) {
        return {};
    }
}

bool TopicFile::lock_slot(uint32_t index) {
    return slot_lock_.lock(fd(), slot_lock_byte(index), "topic '" + topic + "'");
}

void TopicFile::unlock_slot(uint32_t) { slot_lock_.unlock(); }

static bool only_looks(Access access) { return access == Access::inspect || access == Access::observe; }

void TopicFile::map(Access access) {
    control_bytes_ = data_offset;
    if (access == Access::inspect) return copy_control();
    int control_protection = only_looks(access) ? PROT_READ : PROT_READ | PROT_WRITE;
    // A worker marks the messages that it takes.
    bool writes = access == Access::write || (access == Access::read && traits(contract).shared);
    int data_protection = writes ? PROT_READ | PROT_WRITE : PROT_READ;
    // A mapping keeps its open file description alive, and with it the locks, even in a forked child that has closed the
    // descriptor: a roster that a process locked when it died would stay locked. So we map through another description, which
    // has no locks. A fork waits until it is closed, so that no child keeps it.
    PinnedDescriptor file = fd();
    std::string self = "/proc/self/fd/" + std::to_string(file.number());
    std::unique_lock no_fork(descriptors_mutex());
    FileDescriptor through{::open(self.c_str(), (only_looks(access) ? O_RDONLY : O_RDWR) | O_CLOEXEC)};
    if (through.fd < 0) fail_errno("cannot open topic '" + topic + "' again by " + self + ", to map it");
    void* control = mmap(nullptr, control_bytes_, control_protection, MAP_SHARED, through.fd, 0);
    if (control == MAP_FAILED) fail_errno("cannot map topic '" + topic + "'");
    control_ = static_cast<std::byte*>(control);
    if (kind() == FileKind::waiting) return;  // it has no data part
    // A ring is mapped twice; a pool once, with room to align it to a huge page.
    area_bytes_ = kind() == FileKind::ring ? 2 * capacity_bytes
                                           : capacity_bytes + (flags & kHugePages ? kHugePageBytes : 0);
    void* area = mmap(nullptr, area_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) fail_errno("cannot reserve address space for topic '" + topic + "'");
    area_ = static_cast<std::byte*>(area);
    kind() == FileKind::ring ? map_ring(data_protection, through.fd) : map_pool(data_protection, through.fd);
    ::close(through.release());
    no_fork.unlock();
    if (kind() == FileKind::ring && access != Access::observe) populate();
}

// To inspect a topic is to read a few pages once: a copy of them costs less than a mapping and its page faults. Each word is
// as some moment had it, which is all that a look from outside promises.
void TopicFile::copy_control() {
    control_ =
        static_cast<std::byte*>(std::aligned_alloc(kHeaderBytes, align_up(control_bytes_, kHeaderBytes)));
    if (!control_) fail_errno("no memory to inspect topic '" + topic + "'");
    control_copied_ = true;
    PinnedDescriptor file = fd();
    auto read = [&](uint64_t from, uint64_t bytes) {
        if (!read_at(file.number(), control_ + from, bytes, from, "topic '" + topic + "'"))
            fail(Fault::corrupt, "topic '" + topic + "' is shorter than its header says");
    };
    constexpr int kMaxAttempts = 1000;  // the schema changes seldom
    uint32_t version;
    int attempt = 0;
    do {
        read(0, kHeaderBytes);
        version = schema_version();
        if (header().schema_bytes[version % 2].load(std::memory_order_relaxed) != 0)
            read(schema_offset(slot_count), schema_capacity_bytes);
        read(offsetof(Header, schema_version), sizeof version);
    } while (schema_version() != version && ++attempt < kMaxAttempts);
    read(kRosterOffset, uint64_t{slots_used()} * sizeof(Slot));
    if (kept_kinds != 0) read(static_cast<uint64_t>(kept() - control_), kept_hashes_bytes(kept_kinds));
}

void TopicFile::map_ring(int protection, int through) {
    data_ = area_;
    for (int copy = 0; copy < 2; ++copy) {
        void* at = mmap(data_ + copy * capacity_bytes, capacity_bytes, protection, MAP_SHARED | MAP_FIXED,
                        through, static_cast<off_t>(data_offset));
        if (at == MAP_FAILED) fail_errno("cannot map the ring of topic '" + topic + "'");
    }
}

// Maps the pages of the ring now. Otherwise the first lap takes a fault of microseconds on every page, in every process:
// one message in seventy at 32 bytes, which dominates the 99th percentile. Of the second copy, only what a message of
// moderate size reaches across the end. Large rings are left to fault: they would take long to open, and their messages
// are large. Kernels before 5.14 refuse; then the pages fault one by one.
void TopicFile::populate() const {
    constexpr uint64_t kMaxPopulatedBytes = 16 << 20, kAcrossTheEndBytes = 64 << 10;
    constexpr int kPopulateRead =
        22;  // MADV_POPULATE_READ; in shared memory, such a page can be written, too
    if (capacity_bytes > kMaxPopulatedBytes) return;
    uint64_t across = std::min(capacity_bytes, kAcrossTheEndBytes);
    (void)madvise(data_, capacity_bytes + across, kPopulateRead);
}

void TopicFile::map_pool(int protection, int through) {
    data_ = area_;
    if (flags & kHugePages) {  // buffers begin kPoolTableBytes into the data part
        uint64_t first = align_up(reinterpret_cast<uint64_t>(area_) + kPoolTableBytes, kHugePageBytes);
        data_ = reinterpret_cast<std::byte*>(first - kPoolTableBytes);
    }
    void* at = mmap(data_, capacity_bytes, protection, MAP_SHARED | MAP_FIXED, through,
                    static_cast<off_t>(data_offset));
    if (at == MAP_FAILED) fail_errno("cannot map the buffers of stream '" + topic + "'");
    // The kernel may ignore it: FramePublisher checks what it got.
    if (flags & kHugePages) (void)madvise(data_, capacity_bytes, MADV_HUGEPAGE);
}

void TopicFile::populate(bool to_write) {
    constexpr int kPopulateRead = 22,
                  kPopulateWrite = 23;  // MADV_POPULATE_...: fail where touching would be a SIGBUS
    (void)madvise(data_, capacity_bytes, to_write ? kPopulateWrite : kPopulateRead);
}

// A container's /dev/shm has 64 MiB unless it is told otherwise.
static std::string advice_when_full(int fd) {
    struct statvfs fs;
    if (fstatvfs(fd, &fs) != 0) return {};
    return "; of " + std::to_string(fs.f_blocks * fs.f_frsize) + " bytes there, " +
           std::to_string(fs.f_bavail * fs.f_frsize) +
           " are free. Take a smaller capacity=, remove topics that no process uses (`ringmain clean`), or "
           "give "
           "it more memory (in a container: --shm-size, or an emptyDir with medium: Memory and a sizeLimit)";
}

// Allocates all the space now: a full file system is an error here, not a SIGBUS in the middle of a message.
void TopicFile::allocate() {
    uint64_t file_bytes = data_offset + capacity_bytes;
    int file = fd().number();  // it has no name, so it is not closed meanwhile
    if (flags & kHugePages) {
        // Only pages that come through the advised mapping are huge, so fault them in before the rest is allocated.
        if (ftruncate(file, static_cast<off_t>(file_bytes)) != 0)
            fail_errno("cannot set the size of stream '" + topic + "'");
        map(Access::write);
        populate(true);
    }
    if (int error = allocate_space(file, file_bytes))
        throw Failure{Fault::system,
                      "cannot allocate " + std::to_string(file_bytes) + " bytes for topic '" + topic +
                          "' in " + directory->path() + ": " + std::strerror(error) +
                          (error == ENOSPC ? advice_when_full(file) : ""),
                      error};
    if (flags & kHugePages) return;
    map(Access::write);
    if (kind() == FileKind::pool) populate(true);
}

std::shared_ptr<TopicFile> TopicFile::create(std::shared_ptr<Directory> directory, std::string_view topic,
                                             const TopicOptions& options) {
    auto topic_file = std::make_shared<TopicFile>();
    TopicFile& s = *topic_file;
    if (options.schema.size() > kMaxSchemaBytes)
        fail(Fault::system, "a schema takes at most " + std::to_string(kMaxSchemaBytes) +
                                " bytes, this one " + std::to_string(options.schema.size()));
    s.directory = directory;
    s.topic = topic;
    s.contract = options.contract;
    bool pool = s.kind() == FileKind::pool;
    if (s.kind() != FileKind::waiting) {  // which has neither data nor schema
        s.capacity_bytes = pool ? options.capacity_bytes : round_capacity(options.capacity_bytes);
        s.schema_capacity_bytes = align_up(std::max<uint64_t>(8192, 4 * options.schema.size()), page_bytes());
    }
    s.slot_count = s.kind() == FileKind::waiting ? kWaitingSlotCount : options.slot_count;
    s.kept_kinds = options.kept_kinds;
    s.kept_entry_bytes = s.kept_kinds == 0 ? 0 : bytes_for_kept(s.capacity_bytes);
    s.data_offset = align_up(
        schema_offset(s.slot_count) + s.schema_capacity_bytes + kept_bytes(s.kept_kinds, s.kept_entry_bytes),
        page_bytes());
    if (pool && options.huge_pages)  // aligns the first buffer, which follows the table, to a huge page
        s.data_offset = align_up(s.data_offset + kPoolTableBytes, kHugePageBytes) - kPoolTableBytes;
    s.epoch = static_cast<uint64_t>(wall_ns());
    s.mode = options.mode;
    s.flags = (options.persist ? uint32_t{kPersist} : 0) | (options.huge_pages ? uint32_t{kHugePages} : 0) |
              (options.frames ? uint32_t{kFrames} : 0);

    // No name until it is complete: a crash before that leaves nothing, and no process ever opens half a topic.
    struct stat st;
    if (!(s.file_ = OpenFile::create(directory, st)))
        fail_errno("cannot create topic '" + s.topic + "' in " + directory->path());
    s.inode = st.st_ino;
    s.note();
    if (traits(s.contract).shared) s.file_->stay_open();
    if (fchmod(s.fd().number(), options.mode) != 0)
        fail_errno("cannot set the mode of topic '" + s.topic + "'");
    s.allocate();
    CRASH_POINT("create: file made, not filled");

    Header& h = s.header();
    h.magic = kMagic;
    h.version = kVersion;
    h.contract = s.contract;
    h.capacity_bytes = s.capacity_bytes;
    h.data_offset = s.data_offset;
    h.schema_offset = schema_offset(s.slot_count);
    h.schema_capacity_bytes = s.schema_capacity_bytes;
    h.slot_count = s.slot_count;
    h.flags.store(s.flags, std::memory_order_relaxed);
    h.epoch = s.epoch;
    h.kept_kinds = s.kept_kinds;
    h.kept_entry_bytes = s.kept_entry_bytes;
    std::memcpy(h.name, topic.data(), topic.size());
    for (auto* word : {&h.claim, &h.tail, &h.commit}) word->store(lab::origin(), std::memory_order_relaxed);
    for (uint32_t i = 0; i < s.slot_count; ++i) {
        s.slot(i).hold.store(kNoHold, std::memory_order_relaxed);
        s.slot(i).taken_from.store(kNoHold, std::memory_order_relaxed);
    }
    if (traits(s.contract).keeps_unread) {  // holds from the beginning, before its reader joins
        s.slot(kOnlyReaderSlot).hold.store(lab::origin(), std::memory_order_relaxed);
        h.slots_used.store(1, std::memory_order_relaxed);
    }
    if (!options.schema.empty()) s.set_schema(options.schema);
    return topic_file;
}

std::shared_ptr<TopicFile> TopicFile::open(std::shared_ptr<Directory> directory, std::string_view topic,
                                           Access access, FileKind kind) {
    auto topic_file = std::make_shared<TopicFile>();
    TopicFile& s = *topic_file;
    s.directory = directory;
    s.topic = topic;
    std::string file = file_name(topic, kind);
    const char* kinds[] = {"topic '", "the pool of stream '", "the waiting file of topic '"};
    std::string what = kinds[static_cast<int>(kind)] + s.topic + "' (" + directory->path() + "/" + file + ")";

    struct stat st;
    s.file_ = only_looks(access) ? OpenFile::open_to_look(directory, file, access == Access::inspect, st)
                                 : OpenFile::open_to_take_part(directory, file, st);
    if (!s.file_) {
        if (errno == ELOOP) fail(Fault::not_allowed, what + " is a symbolic link: refused");
        if (errno == ENOENT)
            fail(Fault::not_found, std::string("there is no ") +
                                       (kind == FileKind::pool ? "stream of frames '" : "topic '") + s.topic +
                                       "' in " + directory->path());
        fail_errno("cannot open " + what);
    }
    s.inode = st.st_ino;
    s.note();
    s.mode = st.st_mode & 07777;
    if (!S_ISREG(st.st_mode)) fail(Fault::not_allowed, what + " is not a regular file: refused");
    if (!directory->trusts(st.st_uid))
        fail(Fault::not_allowed, what + " belongs to user " + std::to_string(st.st_uid) +
                                     ", who is neither you nor root nor the directory's owner: refused");

    auto corrupt = [&](const std::string& why) { fail(Fault::corrupt, what + " is refused: " + why); };
    alignas(Header) std::byte bytes[sizeof(Header)];
    if (!read_at(s.fd().number(), bytes, sizeof bytes, 0, what)) corrupt("too short to be a topic");
    const Header& h = *reinterpret_cast<const Header*>(bytes);
    if (h.magic != kMagic) corrupt("it does not begin as a topic does (wrong magic)");
    if (h.version != kVersion)
        corrupt("its layout is version " + std::to_string(h.version) + ", this ringmain supports version " +
                std::to_string(kVersion) + "; close its users and run `ringmain clean " + s.topic +
                " --force`");
    s.contract = h.contract;
    s.capacity_bytes = h.capacity_bytes;
    s.data_offset = h.data_offset;
    s.schema_capacity_bytes = h.schema_capacity_bytes;
    s.slot_count = h.slot_count;
    s.epoch = h.epoch;
    s.kept_kinds = h.kept_kinds;
    s.kept_entry_bytes = h.kept_entry_bytes;
    s.flags = h.flags.load(std::memory_order_relaxed);
    if (s.kind() != kind || (kind == FileKind::ring && !is_contract(s.contract))) corrupt("unknown contract");
    bool pool = kind == FileKind::pool;
    bool possible = s.capacity_bytes >= page_bytes() && s.capacity_bytes <= kMaxCapacityBytes &&
                    (pool ? s.capacity_bytes % page_bytes() == 0 : std::has_single_bit(s.capacity_bytes));
    if (kind == FileKind::waiting ? s.capacity_bytes != 0 : !possible) corrupt("impossible capacity");
    uint64_t slack = pool && (s.flags & kHugePages) ? kHugePageBytes : page_bytes();
    if (s.slot_count == 0 || s.slot_count > kMaxSlotCount) corrupt("impossible number of slots");
    bool keeps = s.kept_kinds != 0;
    if (s.kept_kinds > kMaxKeptKinds ||
        (keeps && (kind != FileKind::ring || traits(s.contract).keeps_unread)) ||
        s.kept_entry_bytes != (keeps ? bytes_for_kept(s.capacity_bytes) : 0))
        corrupt("impossible table of kept kinds");
    uint64_t schema_at = schema_offset(s.slot_count);
    uint64_t data_at = schema_at + s.schema_capacity_bytes + kept_bytes(s.kept_kinds, s.kept_entry_bytes);
    if (h.schema_offset != schema_at || s.schema_capacity_bytes > 4 * kMaxSchemaBytes ||
        (keeps && s.schema_capacity_bytes % kAlignBytes != 0) || s.data_offset % page_bytes() != 0 ||
        s.data_offset < data_at || s.data_offset > data_at + slack)
        corrupt("impossible offsets");
    if (static_cast<uint64_t>(st.st_size) != s.data_offset + s.capacity_bytes)
        corrupt("the file has " + std::to_string(st.st_size) + " bytes, the header says " +
                std::to_string(s.data_offset + s.capacity_bytes));
    if (strnlen(h.name, sizeof h.name) != topic.size() ||
        std::memcmp(h.name, topic.data(), topic.size()) != 0)
        corrupt("the header names another topic");
    if (traits(s.contract).shared) s.file_->stay_open();
    s.map(access);
    return topic_file;
}

bool TopicFile::give_name() {
    CRASH_POINT("create: joined, without a name");
    PinnedDescriptor file = fd();
    std::string self = "/proc/self/fd/" + std::to_string(file.number()), name = file_name(topic, kind());
    if (linkat(AT_FDCWD, self.c_str(), directory->fd(), name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
        if (errno == EEXIST) return false;
        fail_errno("cannot give topic '" + topic + "' its name in " + directory->path());
    }
    file_->named(std::move(name));  // from here on nothing throws
    CRASH_POINT("create: named, bell not rung");
    directory->ring();
    return true;
}

bool TopicFile::has_name(const std::string& name) const {
    struct stat st;
    return fstatat(directory->fd(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == inode;
}

bool TopicFile::has_its_name() const { return has_name(file_name(topic, kind())); }

bool TopicFile::nameless() const {
    struct stat st;
    PinnedDescriptor own = intact_fd();
    return own && fstat(own.number(), &st) == 0 && st.st_nlink == 0;
}

void TopicFile::retire() {
    std::string name = file_name(topic, kind());  // first: once it is marked, nothing may throw
    mark_retired(header());
    CRASH_POINT("retire: marked, name kept");
    if (has_name(name)) unlinkat(directory->fd(), name.c_str(), 0);
    CRASH_POINT("retire: unlinked, not announced");
    wake_for_retirement(header());
    directory->ring();
}

// The schema part has two halves. A new schema is written to the half that is not in use, and one store of the version
// switches to it: a process that dies before that has changed nothing. Readers copy, then check the version again.
std::string TopicFile::schema() const {
    constexpr int kMaxAttempts = 1000;
    uint64_t room = schema_capacity_bytes / 2;
    for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
        uint32_t version = header().schema_version.load(std::memory_order_acquire);
        uint64_t size = header().schema_bytes[version % 2].load(std::memory_order_relaxed);
        if (size <= room) {
            std::string copy(size, '\0');
            copy_out(copy.data(), control_ + schema_offset(slot_count) + version % 2 * room, size);
            fence(std::memory_order_acquire);
            if (header().schema_version.load(std::memory_order_relaxed) == version) return copy;
        }
        pause();
    }
    fail(Fault::corrupt, "the schema of topic '" + topic +
                             "' cannot be read: some process wrote where it must not. Unlink the topic "
                             "(force=True) and open it again");
}

void TopicFile::set_schema(std::string_view schema) {
    uint64_t room = schema_capacity_bytes / 2;
    if (schema.size() > room)
        fail(Fault::system, "the schema takes " + std::to_string(schema.size()) + " bytes and topic '" +
                                topic + "' has room for " + std::to_string(room) +
                                "; unlink the topic, so that it is created again");
    uint32_t version = header().schema_version.load(std::memory_order_relaxed) + 1;
    std::byte* half = control_ + schema_offset(slot_count) + version % 2 * room;
    // release: a reader of the schema before last that sees bytes written here also sees that the version changed.
    fence(std::memory_order_release);
    copy_in(half, schema.data(), schema.size() / 2);
    CRASH_POINT("schema: half written");
    copy_in(half + schema.size() / 2, schema.data() + schema.size() / 2, schema.size() - schema.size() / 2);
    header().schema_bytes[version % 2].store(schema.size(), std::memory_order_relaxed);
    CRASH_POINT("schema: written, not announced");
    header().schema_version.store(version, std::memory_order_release);
}

}  // namespace ringmain
