// A runtime directory for one test. It is removed with all that is in it: at the end, if the test throws, and if it calls
// exit().
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "topic/topic_file.hpp"

namespace ringmain::tests {

class TemporaryDirectory {
    std::string path_;
    std::shared_ptr<Directory> directory_;
    pid_t maker_ = getpid();
    static inline TemporaryDirectory* current_ = nullptr;  // one at a time

    void remove() const {
        std::error_code ignored;
        if (getpid() == maker_) std::filesystem::remove_all(path_, ignored);
    }

  public:
    explicit TemporaryDirectory(const std::string& name) : path_("/dev/shm/ringmain-" + name + "-XXXXXX") {
        if (!mkdtemp(path_.data())) std::abort();
        directory_ = std::make_shared<Directory>(path_, false);
        static const int registered = std::atexit([] {
            if (current_) current_->remove();
        });
        (void)registered;
        current_ = this;
    }
    ~TemporaryDirectory() {
        remove();
        current_ = nullptr;
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

    const std::shared_ptr<Directory>& operator*() const { return directory_; }
    const std::string& path() const { return path_; }

    // Have all topics gone with their last participants?
    bool has_no_topic() const {
        for (const auto& entry : std::filesystem::directory_iterator(path_))
            if (entry.path().filename() != "bell") {
                std::fprintf(stderr, "%s is left\n", entry.path().c_str());
                return false;
            }
        return true;
    }
};

}  // namespace ringmain::tests
