// Spool: one thread that writes jobs to files, in order, while the caller prepares the next. It knows descriptors and bytes
// only. Copying into the page cache is half of a recorder's work, so with a second core it records nearly twice as fast.
//
// Invariants: bytes reach the file in the order of put(), each once. After a failed job no other is tried, so the file always
// holds a prefix of what was put. A job's bytes are not read any more once finished() has reached its number.
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
    // Besides the one being written. More would hold more memory, and it would have left the caches when it is written.
    static constexpr size_t kMaxWaiting = 2;
    // Smaller jobs are written by the caller if no job is pending: that is faster than waking a thread.
    static constexpr size_t kSmallBytes = 128 * 1024;

    struct Job {
        int fd;
        std::vector<iovec> pieces;
        int64_t ahead = 0;  // bytes beyond the end to allocate blocks for, before writing
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

    // Blocks while kMaxWaiting jobs wait. Returns the job's number; the first is 1.
    uint64_t put(Job job) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return waiting_.size() < kMaxWaiting; });
        // A pending job is never overtaken, not even by a failure: jobs finish in order.
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

    // Blocks until no job is pending. Returns the errno of the job that failed, or 0.
    int wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return finished_ == put_; });
        return error_;
    }

    // Writes the waiting jobs and ends the thread. A later put() starts another.
    void close() {
        {
            std::unique_lock lock(mutex_);
            closing_ = true;
            changed_.notify_all();
        }
        if (thread_.joinable()) thread_.join();
        closing_ = false;
    }

    // The last job whose bytes are not read again, and the last job that is in its file.
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

    // Starts the thread if there is none. Where the system refuses one, put() writes by itself.
    bool has_thread() {
        if (thread_.joinable()) return true;
        // All signals are blocked here: a signal handled by this thread would not interrupt the program's own.
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            thread_ = std::thread([this] { run(); });
        } catch (const std::exception&) {  // no thread, or no memory for one
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

    // Writes a job and counts it as finished. The lock is released while it writes.
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

    // Allocates many blocks at once instead of one by one during the copy: on ext4, the only file system measured, writing
    // takes a quarter less time. Errors are ignored: a full disk is reported by the write.
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
