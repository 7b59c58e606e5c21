// Writing to files behind the back of whoever has something to write, who meanwhile prepares what comes next: one thread,
// which takes jobs in order and knows descriptors and bytes, nothing else. Copying into the page cache is half of a
// recorder's work, so with a core to spare it records nearly twice as fast.
//
// Invariants: bytes come in the order of put(), each once; after a failed job none is tried, so that what is in the file is
// always a beginning of what was put; a job's bytes are not looked at any more once finished() has reached its number.
#pragma once

#include <algorithm>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <cerrno>

namespace ringmain {

class Spool {
  public:
    // Besides the one being written. More would hold more memory, and have it out of the caches when its turn comes.
    static constexpr size_t kMostWaiting = 2;
    // Written at once, if nothing is under way: sooner than waking a thread.
    static constexpr size_t kSmallBytes = 128 * 1024;

    struct Job {
        int fd;
        std::vector<iovec> pieces;
        int64_t ahead = 0;  // have blocks allocated for so many bytes beyond the end first
        size_t bytes() const {
            size_t sum = 0;
            for (const iovec& piece : pieces) sum += piece.iov_len;
            return sum;
        }
    };

    Spool() = default;
    Spool(const Spool&) = delete;
    Spool& operator=(const Spool&) = delete;
    ~Spool() { close(); }

    // Blocks while as many are waiting as may. Returns the job's number; the first is 1.
    uint64_t put(Job job) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return waiting_.size() < kMostWaiting; });
        // What is under way is never overtaken, not even by a failure: numbers are finished in order.
        if (finished_ == put_ && (error_ != 0 || job.bytes() < kSmallBytes || !has_thread())) {
            ++put_;
            do_job(lock, job);
        } else {
            waiting_.push_back(std::move(job));
            ++put_;
            changed_.notify_all();
        }
        return put_;
    }

    // Blocks until nothing is under way. Returns the errno of the job that failed, if any.
    int wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return finished_ == put_; });
        return error_;
    }

    // Writes what is waiting, and ends the thread. A later put() starts another.
    void close() {
        {
            std::unique_lock lock(mutex_);
            closing_ = true;
            changed_.notify_all();
        }
        if (thread_.joinable()) thread_.join();
        closing_ = false;
    }

    // The last job whose bytes will not be looked at again, and the last that is in its file.
    uint64_t finished() {
        std::unique_lock lock(mutex_);
        return finished_;
    }
    uint64_t written() {
        std::unique_lock lock(mutex_);
        return written_;
    }
    int error() {
        std::unique_lock lock(mutex_);
        return error_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Job> waiting_;
    uint64_t put_ = 0, finished_ = 0, written_ = 0;
    int error_ = 0;
    bool closing_ = false;
    std::thread thread_;

    // Starts it if need be. Where no more threads are to be had, whoever puts does the writing.
    bool has_thread() {
        if (thread_.joinable()) return true;
        // Signals are for the threads of the program: one that is handled here would not wake them.
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            thread_ = std::thread([this] { run(); });
        } catch (const std::system_error&) {
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return thread_.joinable();
    }

    void run() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return closing_ || !waiting_.empty(); });
            if (waiting_.empty()) return;
            Job job = std::move(waiting_.front());
            waiting_.pop_front();
            changed_.notify_all();
            do_job(lock, job);
        }
    }

    // The next one to be finished. Nobody is kept from looking while it is written.
    void do_job(std::unique_lock<std::mutex>& lock, Job& job) {
        int error = error_;
        if (error == 0) {
            lock.unlock();
            error = write_all(job);
            lock.lock();
        }
        ++finished_;
        if (error == 0)
            written_ = finished_;
        else
            error_ = error;
        changed_.notify_all();
    }

    // Blocks found ahead and at once, instead of one by one while bytes are copied: on ext4, where it was measured, writing
    // takes a quarter less. Other file systems are left to themselves, and a full one is noticed by the writing.
    static void allocate(const Job& job) {
        struct statfs system;
        struct stat file;
        if (fstatfs(job.fd, &system) == 0 && system.f_type == EXT4_SUPER_MAGIC && fstat(job.fd, &file) == 0)
            (void)fallocate(job.fd, FALLOC_FL_KEEP_SIZE, file.st_size, job.ahead);
    }

    static int write_all(Job& job) {
        if (job.ahead > 0) allocate(job);
        iovec *at = job.pieces.data(), *end = at + job.pieces.size();
        while (at != end) {
            if (at->iov_len == 0) {
                ++at;
                continue;
            }
            ssize_t wrote = ::writev(job.fd, at, static_cast<int>(std::min<ptrdiff_t>(end - at, IOV_MAX)));
            if (wrote < 0 && errno == EINTR) continue;
            if (wrote <= 0) return wrote == 0 ? EIO : errno;
            for (size_t left = static_cast<size_t>(wrote); left > 0;) {
                size_t step = std::min(left, at->iov_len);
                at->iov_base = static_cast<char*>(at->iov_base) + step;
                at->iov_len -= step;
                left -= step;
                if (at->iov_len == 0) ++at;
            }
        }
        return 0;
    }
};

}  // namespace ringmain
