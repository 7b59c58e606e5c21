#include "topic/open_file.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>

#include "topic/topic_file.hpp"

namespace ringmain {

std::atomic<uint32_t> forks{0};

OpenFile* OpenFile::first_ = nullptr;
OpenFile* OpenFile::last_ = nullptr;
uint32_t OpenFile::count_open_ = 0;

// After a fork the child shares our descriptors, and a lock lives as long as any descriptor of its description. If the child kept
// them, a process that dies while it has the roster would look alive. So the child closes them at once and marks its topic files
// as forked. Set when the module is loaded.
bool OpenFile::handlers_set_ =
    pthread_atfork([] { descriptors_mutex().lock(); }, [] { descriptors_mutex().unlock(); },
                   [] {
                       after_fork_in_child();
                       descriptors_mutex().unlock();
                   }) == 0;

void OpenFile::after_fork_in_child() {
    forks.fetch_add(1, std::memory_order_relaxed);  // relaxed: a child has one thread
    TopicFile::mark_all_forked();
    for (OpenFile* each = first_; each; each = each->next_) {
        each->drop();
        each->forked_ = true;
    }
}

// ------------------------------------------------------------------------------------------ the list, under the mutex

void OpenFile::link() {
    next_ = first_;
    previous_ = nullptr;
    (first_ ? first_->previous_ : last_) = this;
    first_ = this;
}

void OpenFile::unlink() {
    (previous_ ? previous_->next_ : first_) = next_;
    (next_ ? next_->previous_ : last_) = previous_;
}

std::shared_ptr<OpenFile> OpenFile::find(const struct stat& st) {
    for (OpenFile* each = first_; each; each = each->next_)
        if (each->shared_ && !each->forked_ && each->descriptor_.is_of(st))
            if (auto found = each->weak_from_this().lock()) return found;
    return nullptr;
}

void OpenFile::take(const OwnDescriptor& opened) {
    drop();
    descriptor_ = opened;
    ++count_open_;
    unlink();
    link();
    close_some();
}

void OpenFile::drop() {
    if (descriptor_.number() < 0) return;
    descriptor_.close();
    --count_open_;
}

// Those that were opened first. One that has no name could not be opened again.
void OpenFile::close_some() {
    if (count_open_ <= most_open_files()) return;
    OpenFile* each = last_;
    while (each && (each == first_ || each->pins_.load(std::memory_order_acquire) != 0 ||
                    each->name_.empty() || each->stays_open_ || each->descriptor_.number() < 0))
        each = each->previous_;
    if (each) each->drop();
}

// -------------------------------------------------------------------------------------------------- opening

std::shared_ptr<OpenFile> OpenFile::open_to_take_part(const std::shared_ptr<Directory>& directory,
                                                      const std::string& name, struct stat& st) {
    int inside = directory->fd();
    std::shared_ptr<OpenFile> file;  // outlives the lock
    auto made = std::make_shared<OpenFile>();
    made->name_ = name;  // before there is a descriptor: it may throw
    std::lock_guard lock(descriptors_mutex());
    OwnDescriptor opened;
    if (!opened.open(inside, name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0, st)) return nullptr;
    if ((file = find(st))) {
        if (file->descriptor_.intact())
            opened.close();
        else
            file->take(opened);
        return file;
    }
    file = std::move(made);
    file->directory_ = directory;
    file->shared_ = true;
    file->link();
    file->take(opened);
    return file;
}

std::shared_ptr<OpenFile> OpenFile::open_to_look(const std::shared_ptr<Directory>& directory,
                                                 const std::string& name, bool brief, struct stat& st) {
    int inside = directory->fd();
    auto file = std::make_shared<OpenFile>();
    std::lock_guard lock(descriptors_mutex());
    OwnDescriptor opened;
    if (!opened.open(inside, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, st)) return nullptr;
    if (brief) opened.be_brief();
    file->link();
    file->take(opened);
    return file;
}

std::shared_ptr<OpenFile> OpenFile::create(const std::shared_ptr<Directory>& directory, struct stat& st) {
    int inside = directory->fd();
    auto file = std::make_shared<OpenFile>();
    std::lock_guard lock(descriptors_mutex());
    OwnDescriptor opened;
    if (!opened.open(inside, ".", O_TMPFILE | O_RDWR, 0600, st)) return nullptr;
    file->directory_ = directory;
    file->shared_ = true;
    file->link();
    file->take(opened);
    return file;
}

OpenFile::~OpenFile() {
    std::lock_guard lock(descriptors_mutex());
    if (!previous_ && first_ != this) return;  // was never opened
    drop();
    unlink();
}

void OpenFile::named(std::string name) {
    std::lock_guard lock(descriptors_mutex());
    name_ = std::move(name);
}

void OpenFile::stay_open() {
    std::lock_guard lock(descriptors_mutex());
    stays_open_ = true;
}

// --------------------------------------------------------------------------------------------------- in use

PinnedDescriptor OpenFile::pin(std::string_view topic) {
    for (int inside = -1;; inside = directory_->fd()) {
        std::unique_lock lock(descriptors_mutex());
        if (!forked_ && (descriptor_.intact() || (inside >= 0 && open_again(inside)))) {
            pins_.fetch_add(1, std::memory_order_relaxed);  // relaxed: under the mutex, as the look at it is
            return {shared_from_this(), descriptor_.number()};
        }
        if (forked_ || inside >= 0 || name_.empty())
            fail_descriptor_lost("topic '" + std::string(topic) + "'");
    }
}

bool OpenFile::open_again(int directory) {
    struct stat st;
    OwnDescriptor opened;
    if (!opened.open(directory, name_.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0, st)) {
        if (errno == ENOENT || errno == ELOOP) return false;
        throw refused("cannot open the topic file " + name_ + " again", errno);
    }
    if (descriptor_.is_of(st)) {
        take(opened);
        return true;
    }
    opened.close();
    return false;
}

// release: what was done with the number is done before it is closed. Pairs with the acquire in close_some.
PinnedDescriptor::~PinnedDescriptor() {
    if (file_) file_->pins_.fetch_sub(1, std::memory_order_release);
}

bool PinnedDescriptor::claim_roster() const {
    return !file_ || !file_->roster_claimed_.exchange(true, std::memory_order_acquire);
}

void PinnedDescriptor::drop_roster() const {
    if (file_) file_->roster_claimed_.store(false, std::memory_order_release);
}

// ---------------------------------------------------------------------------------------------------- slots

bool SlotLock::lock(const PinnedDescriptor& file, int64_t byte, const std::string& what) {
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = byte;
    lock.l_len = 1;
    std::string self = "/proc/self/fd/" + std::to_string(file.number());
    std::lock_guard no_fork(descriptors_mutex());
    FileDescriptor own{::open(self.c_str(), O_RDWR | O_CLOEXEC)};
    if (own.fd < 0) throw refused("cannot open " + what + " again, to take part", errno);
    if (fcntl(own.fd, F_OFD_SETLK, &lock) != 0) return false;
    size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* page = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, own.fd, 0);
    if (page == MAP_FAILED) throw refused("cannot map " + what, errno);
    page_ = page;
    // A child that inherited the mapping would keep the lock of a parent that dies.
    if (madvise(page, bytes, MADV_DONTFORK) == 0) return true;
    int error = errno;
    unlock();
    throw refused("cannot keep a mapping of " + what + " from children", error);
}

void SlotLock::unlock() {
    if (page_) munmap(std::exchange(page_, nullptr), static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace ringmain
