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

constexpr std::string_view suffix(FileKind kind) {
    return kind == FileKind::ring ? ".ring" : kind == FileKind::pool ? ".frames" : ".waiting";
}

[[noreturn]] void fail(Fault fault, std::string text) { throw Failure{fault, std::move(text)}; }

[[noreturn]] void fail_errno(const std::string& what, int error = errno) { throw refused(what, error); }

uint64_t page_bytes() {
    static const uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

struct FileDescriptor {
    int fd;
    ~FileDescriptor() {
        if (fd >= 0) ::close(fd);
    }
    int release() { return std::exchange(fd, -1); }
};

}  // namespace

// ---------------------------------------------------------------------------------------------- descriptors

// Of topics and of their directories, in this process. Only told to people.
static std::atomic<uint32_t> own_descriptors{0};

Failure refused(const std::string& what, int error) {
    Fault fault = error == ENOENT                     ? Fault::not_found
                  : error == EACCES || error == EPERM ? Fault::not_allowed
                                                      : Fault::system;
    std::string text = what + ": " + std::strerror(error);
    rlimit limit{};
    if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        text +=
            ". This process may have " + std::to_string(limit.rlim_cur) + " descriptors and uses " +
            // relaxed: a number in a text
            std::to_string(own_descriptors.load(std::memory_order_relaxed)) +
            " for topics, two for each publisher and subscriber: raise the limit (ulimit -n in its shell, "
            "LimitNOFILE= of a service), or close what it does not use";
    return {fault, std::move(text), error};
}

bool OwnDescriptor::open(int directory, const char* path, int flags, mode_t mode, struct stat& st) {
    fd_ = openat(directory, path, flags | O_CLOEXEC, mode);
    if (fd_ < 0) return false;
    if (fstat(fd_, &st) == 0) {
        device_ = st.st_dev;
        inode_ = st.st_ino;
        own_descriptors.fetch_add(1, std::memory_order_relaxed);  // relaxed: a number in a text
        return true;
    }
    int error = errno;
    ::close(std::exchange(fd_, -1));
    errno = error;
    return false;
}

bool OwnDescriptor::intact() const {
    struct stat st;
    if (brief_) return fd_ >= 0;
    return fd_ >= 0 && fstat(fd_, &st) == 0 && st.st_dev == device_ && st.st_ino == inode_;
}

void OwnDescriptor::close() {
    if (fd_ < 0) return;
    if (intact()) ::close(fd_);
    fd_ = -1;
    own_descriptors.fetch_sub(1, std::memory_order_relaxed);  // relaxed: a number in a text
}

[[noreturn]] static void fail_descriptor_lost(const std::string& of) {
    throw Failure{Fault::system,
                  "the descriptor of " + of +
                      " is not ours any more: this process closed descriptors that it did not open, as "
                      "daemonizers do. Open topics after that, or open them again",
                  EBADF};
}

// A signal may interrupt each of these, and a call that fails says nothing about the file.
static int allocate_space(int fd, uint64_t bytes) {
    int error;
    do error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
    while (error == EINTR);
    return error;
}

bool read_at(int fd, void* to, size_t bytes, uint64_t from, const std::string& of) {
    ssize_t count;
    do count = pread(fd, to, bytes, static_cast<off_t>(from));
    while (count < 0 && errno == EINTR);
    if (count < 0) fail_errno("cannot read " + of);
    return static_cast<size_t>(count) == bytes;
}

std::string file_name(std::string_view topic, FileKind kind) {
    std::string name(topic);
    for (char& c : name)
        if (c == '/') c = '+';
    return name.append(suffix(kind));
}

std::string topic_name(std::string_view file, FileKind kind) {
    std::string_view end = suffix(kind);
    if (file.size() <= end.size() || !file.ends_with(end)) return {};
    std::string name(file.substr(0, file.size() - end.size()));
    for (char& c : name)
        if (c == '+') c = '/';
    return name;
}

// A power of two, so that position & (capacity - 1) is the offset, and whole pages, so that it can be mirrored.
uint64_t round_capacity(uint64_t capacity_bytes) {
    return std::bit_ceil(capacity_bytes < page_bytes() ? page_bytes() : capacity_bytes);
}

// ---------------------------------------------------------------------------------------------- directory

Directory::Directory(std::string path, bool create) : path_(std::move(path)) {
    // With several threads the kernel takes milliseconds to register them. So before we are in a roster: a reader that is listed
    // there and does not hold yet misses what is sent meanwhile.
    process_barrier::registered();
    if (create && mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST)
        fail_errno("cannot make the runtime directory " + path_);
    struct stat st;
    if (!descriptor_.open(AT_FDCWD, path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, st)) {
        if (errno == ENOTDIR || errno == ELOOP)
            fail(Fault::not_allowed, "the runtime directory " + path_ + " is a link or a file: refused");
        fail_errno("cannot open the runtime directory " + path_);
    }
    struct CloseOnFailure {
        OwnDescriptor* descriptor;
        ~CloseOnFailure() {
            if (descriptor) descriptor->close();
        }
    } guard{&descriptor_};
    owner_ = st.st_uid;
    device_ = st.st_dev;
    inode_ = st.st_ino;
    // In /dev/shm any user could have created the directory under this name.
    bool own = path_ == "/dev/shm/ringmain-" + std::to_string(geteuid());
    if (own && owner_ != geteuid() && owner_ != 0)
        fail(Fault::not_allowed, "the runtime directory " + path_ + " belongs to user " +
                                     std::to_string(owner_) +
                                     ", not to you: refused (have it removed, or set RINGMAIN_DIR)");
    bool writable_by_all = (st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX);
    if (writable_by_all)
        fail(Fault::not_allowed, "the runtime directory " + path_ +
                                     " is writable by every user, so its topics could be forged: refused "
                                     "(chmod o-w it)");
    mode_ = (st.st_mode & S_IWGRP) ? 0660 : 0600;
    FileDescriptor bell{openat(fd(), "bell", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, mode_)};
    struct stat bell_st;
    if (bell.fd >= 0 && fstat(bell.fd, &bell_st) == 0 && S_ISREG(bell_st.st_mode) && trusts(bell_st.st_uid)) {
        if (bell_st.st_uid == geteuid()) (void)fchmod(bell.fd, mode_);  // undoes the umask
        if (bell_st.st_size >= 8 || allocate_space(bell.fd, 8) == 0) {
            void* at = mmap(nullptr, 8, PROT_READ | PROT_WRITE, MAP_SHARED, bell.fd, 0);
            if (at != MAP_FAILED) bell_ = static_cast<Word<uint32_t>*>(at);
        }
    }
    guard.descriptor = nullptr;
}

Directory::~Directory() {
    if (bell_) munmap(bell_, 8);
    descriptor_.close();
}

int Directory::fd() const {
    if (!intact()) fail_descriptor_lost("the runtime directory " + path_);
    return descriptor_.number();
}

// Who may own a topic here: we, root, and the owner of the directory (who could replace any file anyway).
bool Directory::trusts(uid_t owner) const { return owner == geteuid() || owner == 0 || owner == owner_; }

bool Directory::replaced() const {
    struct stat st;
    return stat(path_.c_str(), &st) == 0 && (st.st_dev != device_ || st.st_ino != inode_);
}

bool Directory::has(std::string_view topic) const {
    struct stat st;
    return fstatat(fd(), file_name(topic).c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0;
}

Bell Directory::bell() const {
    if (!bell_) return {};
    return {bell_->futex(), bell_->load(std::memory_order_acquire)};
}

uint32_t Directory::changes() const {
    uint64_t number = 0;
    struct stat st;
    if (bell_)
        number = bell_->load(std::memory_order_acquire);
    else if (fstat(fd(), &st) == 0)
        number = static_cast<uint64_t>(st.st_mtim.tv_sec) * 1'000'000'000 +
                 static_cast<uint64_t>(st.st_mtim.tv_nsec);
    return static_cast<uint32_t>(number + (number >> 32) + inode_ * 0x9e3779b1);
}

void Directory::ring() {
    if (!bell_) return;
    bell_->fetch_add(1, std::memory_order_release);
    wake(bell_->futex());
}

// ------------------------------------------------------------------------------------------------- fork

// After a fork the child shares our descriptors, and a lock lives as long as any of its descriptors. If the child kept
// them, a parent that dies would look alive. So the child closes them at once and marks its topic files as forked. No
// fork comes between opening or closing a descriptor and writing that down: both are done with the mutex, and a fork
// waits for it.
std::atomic<uint32_t> forks{0};

struct OpenTopicFiles {
    std::mutex mutex;
    TopicFile* first = nullptr;

    OpenTopicFiles() {
        pthread_atfork([] { all->mutex.lock(); }, [] { all->mutex.unlock(); },
                       [] {
                           forks.fetch_add(1, std::memory_order_relaxed);  // relaxed: a child has one thread
                           for (TopicFile* s = all->first; s; s = s->next_) {
                               s->forked.store(true, std::memory_order_relaxed);
                               s->descriptor_.close();
                           }
                           all->mutex.unlock();
                       });
    }
    // Made when the module is loaded, so that no fork finds it half made; never destroyed: a fork may come at any time.
    static OpenTopicFiles* const all;

    static bool open(TopicFile& s, int flags, const char* path, mode_t mode, struct stat& st) {
        int directory = s.directory->fd();
        std::lock_guard lock(all->mutex);
        if (!s.descriptor_.open(directory, path, flags, mode, st)) return false;
        s.inode = s.descriptor_.inode();
        s.next_ = all->first;
        if (all->first) all->first->previous_ = &s;
        all->first = &s;
        return true;
    }
    static void close(TopicFile& s) {
        std::lock_guard lock(all->mutex);
        s.descriptor_.close();
        if (s.previous_) s.previous_->next_ = s.next_;
        if (s.next_) s.next_->previous_ = s.previous_;
        if (all->first == &s) all->first = s.next_;
    }
};

OpenTopicFiles* const OpenTopicFiles::all = new OpenTopicFiles;

// ---------------------------------------------------------------------------------------------- topic file

TopicFile::~TopicFile() {
    OpenTopicFiles::close(*this);
    if (area_) munmap(area_, area_bytes_);
    if (control_copied_)
        std::free(control_);
    else if (control_)
        munmap(control_, control_bytes_);
}

int TopicFile::fd() const {
    int fd = intact_fd();
    if (fd < 0) fail_descriptor_lost("topic '" + topic + "'");
    return fd;
}

int TopicFile::intact_fd() const { return descriptor_.intact() ? descriptor_.number() : -1; }

static bool only_looks(Access access) { return access == Access::inspect || access == Access::observe; }

void TopicFile::map(Access access) {
    control_bytes_ = data_offset;
    if (access == Access::inspect) return copy_control();
    int control_protection = only_looks(access) ? PROT_READ : PROT_READ | PROT_WRITE;
    // A worker marks the messages that it takes.
    bool writes = access == Access::write || (access == Access::read && traits(contract).shared);
    int data_protection = writes ? PROT_READ | PROT_WRITE : PROT_READ;
    // A mapping keeps its open file description alive, and with it the locks, even in a forked child that has closed the
    // descriptor: a parent that dies would look alive. So we map through another description, which has no locks. A fork
    // waits until it is closed, so that no child keeps it.
    std::string self = "/proc/self/fd/" + std::to_string(fd());
    std::unique_lock no_fork(OpenTopicFiles::all->mutex);
    FileDescriptor through{::open(self.c_str(), (only_looks(access) ? O_RDONLY : O_RDWR) | O_CLOEXEC)};
    if (through.fd < 0) fail_errno("cannot open topic '" + topic + "' again, to map it");
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
    auto read = [&](uint64_t from, uint64_t bytes) {
        if (!read_at(fd(), control_ + from, bytes, from, "topic '" + topic + "'"))
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
    if (flags & kHugePages) {
        // Only pages that come through the advised mapping are huge, so fault them in before the rest is allocated.
        if (ftruncate(fd(), static_cast<off_t>(file_bytes)) != 0)
            fail_errno("cannot set the size of stream '" + topic + "'");
        map(Access::write);
        populate(true);
    }
    if (int error = allocate_space(fd(), file_bytes))
        throw Failure{Fault::system,
                      "cannot allocate " + std::to_string(file_bytes) + " bytes for topic '" + topic +
                          "' in " + directory->path() + ": " + std::strerror(error) +
                          (error == ENOSPC ? advice_when_full(fd()) : ""),
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
    if (!OpenTopicFiles::open(s, O_TMPFILE | O_RDWR, ".", 0600, st))
        fail_errno("cannot create topic '" + s.topic + "' in " + directory->path());
    if (fchmod(s.fd(), options.mode) != 0) fail_errno("cannot set the mode of topic '" + s.topic + "'");
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
    if (!OpenTopicFiles::open(s, (only_looks(access) ? O_RDONLY : O_RDWR) | O_NOFOLLOW | O_NONBLOCK,
                              file.c_str(), 0, st)) {
        if (errno == ELOOP) fail(Fault::not_allowed, what + " is a symbolic link: refused");
        if (errno == ENOENT)
            fail(Fault::not_found, std::string("there is no ") +
                                       (kind == FileKind::pool ? "stream of frames '" : "topic '") + s.topic +
                                       "' in " + directory->path());
        fail_errno("cannot open " + what);
    }
    if (access == Access::inspect) s.descriptor_.be_brief();
    s.mode = st.st_mode & 07777;
    if (!S_ISREG(st.st_mode)) fail(Fault::not_allowed, what + " is not a regular file: refused");
    if (!directory->trusts(st.st_uid))
        fail(Fault::not_allowed, what + " belongs to user " + std::to_string(st.st_uid) +
                                     ", who is neither you nor root nor the directory's owner: refused");

    auto corrupt = [&](const std::string& why) { fail(Fault::corrupt, what + " is refused: " + why); };
    alignas(Header) std::byte bytes[sizeof(Header)];
    if (!read_at(s.fd(), bytes, sizeof bytes, 0, what)) corrupt("too short to be a topic");
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
    s.map(access);
    return topic_file;
}

bool TopicFile::give_name() {
    CRASH_POINT("create: joined, without a name");
    std::string self = "/proc/self/fd/" + std::to_string(fd());
    if (linkat(AT_FDCWD, self.c_str(), directory->fd(), file_name(topic, kind()).c_str(),
               AT_SYMLINK_FOLLOW) != 0) {
        if (errno == EEXIST) return false;
        fail_errno("cannot give topic '" + topic + "' its name in " + directory->path());
    }
    CRASH_POINT("create: named, bell not rung");
    directory->ring();
    return true;
}

bool TopicFile::has_its_name() const {
    struct stat st;
    return fstatat(directory->fd(), file_name(topic, kind()).c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_ino == inode;
}

bool TopicFile::nameless() const {
    struct stat st;
    int own = intact_fd();
    return own >= 0 && fstat(own, &st) == 0 && st.st_nlink == 0;
}

void TopicFile::retire() {
    mark_retired(header());
    CRASH_POINT("retire: marked, name kept");
    if (has_its_name()) unlinkat(directory->fd(), file_name(topic, kind()).c_str(), 0);
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
