#include "topic/descriptor.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ringmain {

// Made when it is first asked for, which is when the module is loaded (open_file.cpp); never destroyed: a fork may come at any
// time.
std::mutex& descriptors_mutex() {
    static std::mutex& mutex = *new std::mutex;
    return mutex;
}

// Of topics and of their directories, in this process. Only told to people.
static std::atomic<uint32_t> own_descriptors{0};

Failure refused(const std::string& what, int error) {
    Fault fault = error == ENOENT                     ? Fault::not_found
                  : error == EACCES || error == EPERM ? Fault::not_allowed
                                                      : Fault::system;
    std::string text = what + ": " + std::strerror(error);
    rlimit limit{};
    if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        text += ". This process may have " + std::to_string(limit.rlim_cur) + " descriptors and uses " +
                // relaxed: a number in a text
                std::to_string(own_descriptors.load(std::memory_order_relaxed)) +
                " for topics, one for each that is open: raise the limit (ulimit -n in its shell, "
                "LimitNOFILE= of a "
                "service), or close what it does not use";
    return {fault, std::move(text), error};
}

[[noreturn]] void fail_descriptor_lost(const std::string& of) {
    throw Failure{
        Fault::system,
        "the descriptor of " + of +
            " was closed by other code of this process, and the file has lost its name, so it cannot be "
            "opened again. Close the topic, and open it once more",
        EBADF};
}

uint32_t most_open_files() {
    constexpr uint32_t kFewest = 8, kMost = 4096;
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kFewest;
    return static_cast<uint32_t>(std::clamp<rlim_t>(limit.rlim_cur / 2, kFewest, kMost));
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
    return fd_ >= 0 && fstat(fd_, &st) == 0 && is_of(st);
}

void OwnDescriptor::close() {
    if (fd_ < 0) return;
    if (intact()) ::close(fd_);
    fd_ = -1;
    own_descriptors.fetch_sub(1, std::memory_order_relaxed);  // relaxed: a number in a text
}

// A signal may interrupt each of these, and a call that fails says nothing about the file.
int allocate_space(int fd, uint64_t bytes) {
    int error;
    do error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
    while (error == EINTR);
    return error;
}

bool read_at(int fd, void* to, size_t bytes, uint64_t from, const std::string& of) {
    ssize_t count;
    do count = pread(fd, to, bytes, static_cast<off_t>(from));
    while (count < 0 && errno == EINTR);
    if (count < 0) throw refused("cannot read " + of, errno);
    return static_cast<size_t>(count) == bytes;
}

}  // namespace ringmain
