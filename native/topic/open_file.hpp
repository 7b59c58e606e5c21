// A topic's file as this process has it open. Owns this invariant: all participants of a process share one descriptor of a file,
// and no participant's lock hangs on it.
//
// Through the descriptor the kernel is asked who is alive, and the roster is locked. A participant's own lock is of another open
// file description, which a mapping keeps (SlotLock): so it needs no descriptor, and no code that closes foreign descriptors
// drops it.
#pragma once

#include <memory>
#include <string>

#include "topic/directory.hpp"

namespace ringmain {

class OpenFile;

// A number that stays that of its file until this goes out of scope.
class PinnedDescriptor {
    std::shared_ptr<OpenFile> file_;
    int number_ = -1;

  public:
    PinnedDescriptor() = default;
    explicit PinnedDescriptor(int number) : number_(number) {}  // of no file that is shared
    PinnedDescriptor(std::shared_ptr<OpenFile> file, int number) : file_(std::move(file)), number_(number) {}
    PinnedDescriptor(PinnedDescriptor&& other) noexcept { *this = std::move(other); }
    PinnedDescriptor& operator=(PinnedDescriptor&& other) noexcept {
        std::swap(file_, other.file_);
        std::swap(number_, other.number_);
        return *this;
    }
    ~PinnedDescriptor();

    explicit operator bool() const { return number_ >= 0; }
    int number() const { return number_; }
    // To one thread of this process at a time: the kernel lets all lock that have the same description. False: another has it.
    bool claim_roster() const;
    void drop_roster() const;
};

class OpenFile : public std::enable_shared_from_this<OpenFile> {
    OwnDescriptor descriptor_;  // this and the rest but for the atomics: under descriptors_mutex
    std::shared_ptr<Directory> directory_;
    std::string name_;  // empty: it has none yet, or is not to be opened again
    bool stays_open_ = false, shared_ = false, forked_ = false;
    OpenFile *previous_ = nullptr, *next_ = nullptr;  // the list of this process, from the latest opened
    std::atomic<uint32_t> pins_{0};
    std::atomic<bool> roster_claimed_{false};
    friend class PinnedDescriptor;

    static OpenFile *first_, *last_;
    static uint32_t count_open_;
    static std::shared_ptr<OpenFile> find(const struct stat& st);
    static void close_some();
    static void after_fork_in_child();
    static bool handlers_set_;

    void link();
    void unlink();
    void take(const OwnDescriptor& opened);
    void drop();
    bool open_again(int directory);

  public:
    OpenFile() = default;
    ~OpenFile();
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;

    // `name`: of a file that is there. nullptr: errno says why.
    static std::shared_ptr<OpenFile> open_to_take_part(const std::shared_ptr<Directory>& directory,
                                                       const std::string& name, struct stat& st);
    // For the process's own looks: it is shared with no participant, and read only.
    static std::shared_ptr<OpenFile> open_to_look(const std::shared_ptr<Directory>& directory,
                                                  const std::string& name, bool brief, struct stat& st);
    // A new file without a name. nullptr: errno says why.
    static std::shared_ptr<OpenFile> create(const std::shared_ptr<Directory>& directory, struct stat& st);
    // From now on it can be found by this name.
    void named(std::string name);
    // Even where many are open: what its participants had is given back also after it has lost its name.
    void stay_open();

    // Opens the file again if other code of this process has closed the descriptor, or this class did since too many were open.
    // Throws if the file has lost its name by then.
    PinnedDescriptor pin(std::string_view topic);
};

// The lock of a byte, by which the kernel knows that a participant is alive. A mapping that no child inherits keeps it: the
// kernel drops it with the process, also where other code closes all descriptors, or a child lives on.
class SlotLock {
    void* page_ = nullptr;

  public:
    SlotLock() = default;
    ~SlotLock() { unlock(); }
    SlotLock(const SlotLock&) = delete;
    SlotLock& operator=(const SlotLock&) = delete;

    // False: another has it.
    bool lock(const PinnedDescriptor& file, int64_t byte, const std::string& what);
    void unlock();
    void forget() { page_ = nullptr; }  // in a forked child, which has no such mapping
};

}  // namespace ringmain
