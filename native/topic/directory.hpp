// The runtime directory, and the names of files in it. Owns this invariant: a directory is used only after its owner and its
// mode were checked.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/bell.hpp"
#include "topic/descriptor.hpp"

namespace ringmain {

// A topic's ring, the pool of buffers beside it, and where readers wait while there is no ring. Each is a file.
enum class FileKind { ring, pool, waiting };

// Files are named after topics, with '+' for '/', since "a" and "a/b" may both be topics.
std::string file_name(std::string_view topic, FileKind kind = FileKind::ring);
// Empty if the file is not one of this kind.
std::string topic_name(std::string_view file, FileKind kind = FileKind::ring);

// Opened once and checked: ours or root's, not a link, not writable by every user.
class Directory {
    mutable OwnDescriptor descriptor_;  // under descriptors_mutex
    std::string path_;
    uid_t owner_ = 0, opened_as_ = 0;
    dev_t device_ = 0;
    ino_t inode_ = 0, bell_inode_ = 0;
    mode_t own_mode_ = 0;
    uint32_t mode_ = 0600;
    Word<uint32_t>* bell_ = nullptr;

    void open_bell();
    bool as_checked() const;

  public:
    Directory(std::string path, bool create);
    ~Directory();
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;

    // The one that this process has open, if the path still leads to it and nothing that was checked has changed; otherwise
    // another. So endpoints share one descriptor.
    static std::shared_ptr<Directory> at(const std::string& path, bool create);

    int fd() const;  // throws if other code has closed it, and the path leads elsewhere now
    bool intact() const;
    const std::string& path() const { return path_; }
    uint64_t inode() const { return inode_; }
    uint32_t mode() const { return mode_; }  // of the files that all users of the directory share
    bool trusts(uid_t owner) const;
    // Was it removed, and made again under the same path? Then topics are created in that one, and no bell rings here.
    bool replaced() const;
    bool has(std::string_view topic) const;  // its ring

    // Rings whenever a topic is created or removed. Without a bell (in a directory we may not write), waits poll.
    Bell bell() const;
    void ring();
    // Another number whenever a topic was created or removed, also without a bell.
    uint32_t changes() const;
};

}  // namespace ringmain
