#include "topic/directory.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <vector>

#include "base/barrier.hpp"

namespace ringmain {

namespace {

constexpr std::string_view suffix(FileKind kind) {
    return kind == FileKind::ring ? ".ring" : kind == FileKind::pool ? ".frames" : ".waiting";
}

[[noreturn]] void fail(Fault fault, std::string text) { throw Failure{fault, std::move(text)}; }

[[noreturn]] void fail_errno(const std::string& what, int error = errno) { throw refused(what, error); }

// Under descriptors_mutex, with which no directory may be destroyed: so the paths are beside them.
struct Known {
    std::string path;
    std::weak_ptr<Directory> directory;
};

std::vector<Known>& open_directories() {
    static auto& all = *new std::vector<Known>;
    return all;
}

std::shared_ptr<Directory> find_open(const std::string& path) {
    std::lock_guard lock(descriptors_mutex());
    for (const Known& each : open_directories())
        if (each.path == path) return each.directory.lock();
    return nullptr;
}

void note_open(const std::shared_ptr<Directory>& opened) {
    std::lock_guard lock(descriptors_mutex());
    std::erase_if(open_directories(),
                  [&](const Known& each) { return each.directory.expired() || each.path == opened->path(); });
    open_directories().push_back({opened->path(), opened});
}

}  // namespace

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

std::shared_ptr<Directory> Directory::at(const std::string& path, bool create) {
    process_barrier::registered();
    if (std::shared_ptr<Directory> found = find_open(path); found && found->as_checked()) return found;
    auto opened = std::make_shared<Directory>(path, create);
    note_open(opened);
    return opened;
}

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
    opened_as_ = geteuid();
    own_mode_ = st.st_mode;
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
    open_bell();
    guard.descriptor = nullptr;
}

void Directory::open_bell() {
    FileDescriptor bell{
        openat(descriptor_.number(), "bell", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, mode_)};
    struct stat bell_st;
    if (bell.fd >= 0 && fstat(bell.fd, &bell_st) == 0 && S_ISREG(bell_st.st_mode) && trusts(bell_st.st_uid)) {
        if (bell_st.st_uid == geteuid()) (void)fchmod(bell.fd, mode_);  // undoes the umask
        if (bell_st.st_size >= 8 || allocate_space(bell.fd, 8) == 0) {
            void* at = mmap(nullptr, 8, PROT_READ | PROT_WRITE, MAP_SHARED, bell.fd, 0);
            if (at == MAP_FAILED) return;
            bell_ = static_cast<Word<uint32_t>*>(at);
            bell_inode_ = bell_st.st_ino;
        }
    }
}

Directory::~Directory() {
    if (bell_) munmap(bell_, 8);
    std::lock_guard lock(descriptors_mutex());
    descriptor_.close();
}

// Would another look find what the constructor found?
bool Directory::as_checked() const {
    struct stat st, bell;
    return bell_ && opened_as_ == geteuid() && lstat(path_.c_str(), &st) == 0 && st.st_dev == device_ &&
           st.st_ino == inode_ && st.st_uid == owner_ && st.st_mode == own_mode_ && intact() &&
           fstatat(descriptor_.number(), "bell", &bell, AT_SYMLINK_NOFOLLOW) == 0 &&
           bell.st_ino == bell_inode_;
}

bool Directory::intact() const {
    std::lock_guard lock(descriptors_mutex());
    return descriptor_.intact();
}

int Directory::fd() const {
    std::lock_guard lock(descriptors_mutex());
    if (descriptor_.intact()) return descriptor_.number();
    // Other code of this process has closed it.
    descriptor_.close();
    struct stat st;
    OwnDescriptor again;
    if (!again.open(AT_FDCWD, path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, st))
        fail_errno("cannot open the runtime directory " + path_ + " again");
    if (st.st_dev != device_ || st.st_ino != inode_) {
        again.close();
        fail_descriptor_lost("the runtime directory " + path_);
    }
    descriptor_ = again;
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

}  // namespace ringmain
