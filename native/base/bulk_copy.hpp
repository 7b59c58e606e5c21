// Copying megabytes into memory that another process reads. There are several methods, and which is fastest depends on
// what cannot be queried: where the reader runs, what is in its caches, which processor this is. So it is measured. Owns
// this invariant: with any method, the copy is complete before the next store.
//
// Measured with 6 MB in two buffers and a reader that reads all of it, on two cores of an AMD EPYC (Zen 4) that share a
// cache some of the time, the methods in alternation; us a frame:
//
//                best tenth    median
//   ordinary            219     1,698     memcpy
//   string              192     2,059     rep movsb: no line is fetched only to be overwritten
//   streaming           263       349     past the caches: no line is fetched back from the reader's
//
// A method on trial is used for a few copies in a row, since the first only clears the caches of what the previous method
// left there. Trials become rare while they change nothing, and start at once when copies take much longer than before.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/word.hpp"

// A sanitizer sees neither string nor streaming stores.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(RINGMAIN_STRICT)
#define RINGMAIN_COPY_METHODS 3
#include <emmintrin.h>
#else
#define RINGMAIN_COPY_METHODS 1
#endif

namespace ringmain {

enum class CopyMethod : uint8_t { ordinary, string, streaming };

// Smaller copies stay in the processor's own cache with any method.
constexpr size_t kBulkBytes = 256 * 1024;

constexpr uint32_t kCopyMethods = RINGMAIN_COPY_METHODS;

#if RINGMAIN_COPY_METHODS > 1

namespace bulk {

inline void copy_string(void* to, const void* from, size_t size) {
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

inline void copy_streaming(void* to, const void* from, size_t size) {
    constexpr size_t kLine = 64;
    auto* target = static_cast<char*>(to);
    auto* source = static_cast<const char*>(from);
    size_t first = std::min(size, -reinterpret_cast<uintptr_t>(target) & (kLine - 1));
    std::memcpy(target, source, first);
    size_t lines = (size - first) / kLine;
    target += first;
    source += first;
    for (size_t i = 0; i < lines; ++i, target += kLine, source += kLine)
        for (size_t part = 0; part < kLine; part += 16)
            _mm_stream_si128(reinterpret_cast<__m128i*>(target + part),
                             _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + part)));
    // Nothing else orders streaming stores, not even a release.
    _mm_sfence();
    std::memcpy(target, source, size - first - lines * kLine);
}

}  // namespace bulk

#endif

inline void copy_bulk(CopyMethod method, void* to, const void* from, size_t size) {
#if RINGMAIN_COPY_METHODS > 1
    if (method == CopyMethod::string) return bulk::copy_string(to, from, size);
    if (method == CopyMethod::streaming) return bulk::copy_streaming(to, from, size);
#endif
    (void)method;
    copy_in(static_cast<std::byte*>(to), from, size);
}

// Chooses the method of the next copy. Costs are per byte, in any unit.
class CopyChoice {
    static constexpr uint32_t kTrialCopies = 6;
    static constexpr uint32_t kUncounted = 2;  // of those, while the caches change over
    // Copies between trials; few at first, to settle soon.
    static constexpr uint32_t kFirstPause = 4, kShortPause = 16, kLongPause = 512;
    static constexpr float kBetter = 0.95f, kHopeless = 2.5f, kWorse = 1.5f;
    static constexpr float kUnknown = std::numeric_limits<float>::max();

    uint32_t best_ = 0, trial_ = 0;
    uint32_t done_ = 0, bad_ = 0;  // copies of the current trial; those that took far too long
    bool trying_ = false;
    uint32_t pause_ = kFirstPause, left_ = kFirstPause;  // until the next trial
    float trial_cost_ = kUnknown;
    float settled_cost_ = kUnknown;  // of the best method, when it was chosen
    // Recent costs of the best method. The smallest counts: interruptions only add.
    std::array<float, 8> lately_ = unknown();
    uint32_t at_ = 0;

    static constexpr std::array<float, 8> unknown() {
        std::array<float, 8> costs{};
        costs.fill(kUnknown);
        return costs;
    }

    float cost() const { return *std::min_element(lately_.begin(), lately_.end()); }

    void end_trial(bool better) {
        trying_ = false;
        if (better) {
            best_ = trial_;
            settled_cost_ = trial_cost_;
            lately_ = unknown();
            lately_[0] = trial_cost_;
            pause_ = kShortPause;
        } else {
            settled_cost_ = cost();
            pause_ = std::min(2 * pause_, kLongPause);
        }
        left_ = pause_;
    }

  public:
    CopyMethod next() {
        if (!trying_ && left_ == 0 && kCopyMethods > 1) {
            trial_ = (trial_ + 1) % kCopyMethods;
            if (trial_ == best_) trial_ = (trial_ + 1) % kCopyMethods;
            trying_ = true;
            done_ = bad_ = 0;
            trial_cost_ = kUnknown;
        }
        return static_cast<CopyMethod>(trying_ ? trial_ : best_);
    }

    void learn(CopyMethod method, float cost_of_it) {
        if (trying_ && method == static_cast<CopyMethod>(trial_)) {
            if (++done_ > kUncounted) trial_cost_ = std::min(trial_cost_, cost_of_it);
            if (cost_of_it > kHopeless * cost() && ++bad_ == 2)  // one may have been interrupted
                end_trial(false);
            else if (done_ == kTrialCopies)
                end_trial(trial_cost_ < kBetter * cost());
        } else if (method == static_cast<CopyMethod>(best_)) {
            lately_[at_++ % lately_.size()] = cost_of_it;
            if (left_ > 0) --left_;
            if (cost() > kWorse * settled_cost_ && settled_cost_ != kUnknown) {
                settled_cost_ = cost();
                pause_ = kShortPause;
                left_ = 0;
            }
        }
    }
};

}  // namespace ringmain
