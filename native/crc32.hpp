// CRC-32 (zlib's polynomial, reflected) with the processor's own instructions: what recordings check themselves with.
//
// zlib computes the same at some 4 GB/s here, which is what writing to the page cache costs too, so a recorder would spend
// half its time on it. Carry-less multiplication folds 64 bytes at a time, or 256; on aarch64 there is an instruction for it.
// Invariant: equal to zlib's crc32() for all bytes and all starting values (a test compares them).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace ringmain {

namespace crc32_detail {

constexpr std::array<uint32_t, 256> make_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0xEDB88320u : 0u);
        table[i] = value;
    }
    return table;
}
inline constexpr auto kTable = make_table();

// For the few bytes that do not fill a register.
inline uint32_t bytewise(uint32_t state, const unsigned char* at, size_t count) {
    while (count--) state = (state >> 8) ^ kTable[(state ^ *at++) & 0xFF];
    return state;
}

#if defined(__x86_64__)
// Multiply both halves by the constants that move them `distance` bits on, and add what is there.
__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(__m128i part, __m128i distance, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(part, distance, 0x00);
    __m128i high = _mm_clmulepi64_si128(part, distance, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// What moves a register on by `distance` bits: x^(distance + 32) and x^(distance - 32) mod P, bit-reflected.
constexpr uint64_t power(int n) {
    uint32_t value = 0x80000000u;  // x^0
    while (n--) value = (value >> 1) ^ (value & 1 ? 0xEDB88320u : 0u);
    return uint64_t{value} << 1;
}
static_assert(power(512 + 32) == 0x154442bd4 && power(512 - 32) == 0x1c6e41596 && power(64) == 0x163cd6124);

inline __m128i load16(const unsigned char* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
template <int distance>
inline __m128i move_by() {
    constexpr int64_t low = static_cast<int64_t>(power(distance + 32)),
                      high = static_cast<int64_t>(power(distance - 32));
    return _mm_set_epi64x(high, low);
}

// From 128 bits and what is left, a multiple of 16 bytes, to the 32 bits of the result.
__attribute__((target("pclmul,sse4.1"))) inline uint32_t reduced(__m128i a, const unsigned char* at,
                                                                 size_t count) {
    const __m128i by128 = move_by<128>();
    const __m128i to64 = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);  // floor(x^64 / P), and P
    for (; count >= 16; at += 16, count -= 16) a = fold(a, by128, load16(at));

    const __m128i low32 = _mm_setr_epi32(-1, 0, -1, 0);
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by128, 0x10));
    a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, low32), to64, 0x00));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(a, low32), barrett, 0x10);
    __m128i product = _mm_clmulepi64_si128(_mm_and_si128(quotient, low32), barrett, 0x00);
    return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(a, product), 1));
}

// `count` is a multiple of 16, and at least 64.
__attribute__((target("pclmul,sse4.1"))) inline uint32_t folded(uint32_t state, const unsigned char* at,
                                                                size_t count) {
    const __m128i by512 = move_by<512>(), by128 = move_by<128>();
    __m128i a = _mm_xor_si128(load16(at), _mm_cvtsi32_si128(static_cast<int>(state)));
    __m128i b = load16(at + 16), c = load16(at + 32), d = load16(at + 48);
    for (at += 64, count -= 64; count >= 64; at += 64, count -= 64) {
        a = fold(a, by512, load16(at));
        b = fold(b, by512, load16(at + 16));
        c = fold(c, by512, load16(at + 32));
        d = fold(d, by512, load16(at + 48));
    }
    a = fold(a, by128, b);
    a = fold(a, by128, c);
    return reduced(fold(a, by128, d), at, count);
}

// The same in registers of 512 bits, where the processor has them: 256 bytes at a time.
#define RINGMAIN_WIDE __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

template <int distance>
RINGMAIN_WIDE inline __m512i move_wide_by() {
    constexpr int64_t low = static_cast<int64_t>(power(distance + 32)),
                      high = static_cast<int64_t>(power(distance - 32));
    return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}

RINGMAIN_WIDE inline __m512i fold(__m512i part, __m512i distance, __m512i next) {
    __m512i low = _mm512_clmulepi64_epi128(part, distance, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(part, distance, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // all three added
}

// `count` is a multiple of 16, and at least 256.
RINGMAIN_WIDE inline uint32_t folded_wide(uint32_t state, const unsigned char* at, size_t count) {
    const __m512i by2048 = move_wide_by<2048>(), by512 = move_wide_by<512>();
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(at), _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                                                          0, 0, 0, static_cast<int>(state)));
    __m512i b = _mm512_loadu_si512(at + 64), c = _mm512_loadu_si512(at + 128),
            d = _mm512_loadu_si512(at + 192);
    for (at += 256, count -= 256; count >= 256; at += 256, count -= 256) {
        a = fold(a, by2048, _mm512_loadu_si512(at));
        b = fold(b, by2048, _mm512_loadu_si512(at + 64));
        c = fold(c, by2048, _mm512_loadu_si512(at + 128));
        d = fold(d, by2048, _mm512_loadu_si512(at + 192));
    }
    alignas(64) unsigned char last[64];
    _mm512_store_si512(last, fold(fold(fold(a, by512, b), by512, c), by512, d));
    const __m128i by128 = move_by<128>();
    __m128i e = fold(fold(load16(last), by128, load16(last + 16)), by128, load16(last + 32));
    return reduced(fold(e, by128, load16(last + 48)), at, count);
}
#undef RINGMAIN_WIDE

inline const bool kWide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
#elif defined(__aarch64__)
__attribute__((target("+crc"))) inline uint32_t wordwise(uint32_t state, const unsigned char* at,
                                                         size_t count) {
    for (; count >= 8; at += 8, count -= 8) {
        uint64_t word;
        std::memcpy(&word, at, 8);
        state = __crc32d(state, word);
    }
    return bytewise(state, at, count);
}
#endif

}  // namespace crc32_detail

// Does this processor have what it takes? If not, zlib is the faster one.
inline bool has_fast_crc32() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#elif defined(__aarch64__)
    return getauxval(AT_HWCAP) & (1 << 7);  // HWCAP_CRC32
#else
    return false;
#endif
}

// Only where has_fast_crc32().
inline uint32_t crc32(const void* data, size_t count, uint32_t start) {
    using namespace crc32_detail;
    auto* at = static_cast<const unsigned char*>(data);
    uint32_t state = ~start;
#if defined(__x86_64__)
    if (count >= 64) {
        size_t whole = count & ~size_t{15};
        state = whole >= 256 && kWide ? folded_wide(state, at, whole) : folded(state, at, whole);
        at += whole;
        count -= whole;
    }
    return ~bytewise(state, at, count);
#elif defined(__aarch64__)
    return ~wordwise(state, at, count);
#else
    return ~bytewise(state, at, count);
#endif
}

}  // namespace ringmain
