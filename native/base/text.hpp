// Text from shared memory, made safe to show. Owns this invariant: the result is valid UTF-8, and without control
// characters where it is printed, whatever a peer wrote: it ends up in Python strings, Arrow columns and terminals.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace ringmain {

// The number of bytes of the valid UTF-8 sequence at the beginning of `text`, or 0.
inline size_t utf8_length(std::string_view text) {
    auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    uint8_t first = byte(0);
    if (first < 0x80) return 1;
    size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
    for (size_t i = 1; i < length; ++i)
        if ((byte(i) & 0xc0) != 0x80) return 0;
    // Overlong forms, surrogates, and values beyond Unicode.
    bool wrong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f) ||
                 (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f);
    return wrong ? 0 : length;
}

inline bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        uint64_t eight;
        if (text.size() >= sizeof eight) {  // most text is ASCII
            std::memcpy(&eight, text.data(), sizeof eight);
            if ((eight & 0x8080808080808080) == 0) {
                text.remove_prefix(sizeof eight);
                continue;
            }
        }
        size_t length = utf8_length(text);
        if (length == 0) return false;
        text.remove_prefix(length);
    }
    return true;
}

// Replaces what is not valid by U+FFFD.
inline std::string valid_utf8(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        size_t length = utf8_length(text);
        if (length == 0)
            out += "\xef\xbf\xbd";
        else
            out += text.substr(0, length);
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return out;
}

// The same, and replaces control characters by '?': for terminals.
inline std::string printable(std::string_view text) {
    std::string out = valid_utf8(text);
    for (size_t i = 0; i < out.size(); ++i) {
        auto byte = static_cast<uint8_t>(out[i]);
        bool second_set = byte == 0xc2 && static_cast<uint8_t>(out[i + 1]) < 0xa0;  // U+0080 to U+009F
        if (second_set) out.replace(i, 2, "?");
        if (byte < 0x20 || byte == 0x7f) out[i] = '?';
    }
    return out;
}

}  // namespace ringmain
