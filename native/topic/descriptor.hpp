// The descriptors of this process for topics: what the kernel says of them, and how a fork meets them.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "base/failure.hpp"

namespace ringmain {

// How many forks lie between this process and the one that loaded the module: tells a child from its parent without a
// system call.
extern std::atomic<uint32_t> forks;

// Held while a descriptor is opened or closed and that is written down. A fork waits for it, so that the child knows all that
// it has inherited.
std::mutex& descriptors_mutex();

// What the system refused, in words. At the limit of descriptors it also says how many of them are for topics.
Failure refused(const std::string& what, int error);
[[noreturn]] void fail_descriptor_lost(const std::string& of);

// Copies so much of a file; false if it ends before. An error of the kernel is a Failure.
bool read_at(int fd, void* to, size_t bytes, uint64_t from, const std::string& of);
// 0, or an error's number.
int allocate_space(int fd, uint64_t bytes);

// How many descriptors of topic files this process keeps open: half of what it may have. Beyond that, those of files with a
// name are closed, and opened again when they are needed.
uint32_t most_open_files();

// A descriptor, and the file that it was opened for. A process may close descriptors that are not its own (daemonizers
// close all of them), and the number then belongs to another file, which must be neither locked nor closed.
class OwnDescriptor {
    int fd_ = -1;
    dev_t device_ = 0;
    ino_t inode_ = 0;
    bool brief_ = false;

  public:
    // `st`: of the opened file. False: errno says why.
    bool open(int directory, const char* path, int flags, mode_t mode, struct stat& st);
    // It is opened, used and closed within one call, so that no other code of this process closes it: intact() need not ask.
    void be_brief() { brief_ = true; }
    bool intact() const;  // is it still the file that was opened?
    void close();         // only if it is
    int number() const { return fd_; }
    bool is_of(const struct stat& st) const { return st.st_dev == device_ && st.st_ino == inode_; }
    ino_t inode() const { return inode_; }
};

// For a descriptor within one call.
struct FileDescriptor {
    int fd;
    ~FileDescriptor() {
        if (fd >= 0) ::close(fd);
    }
    int release() { return std::exchange(fd, -1); }
};

}  // namespace ringmain
