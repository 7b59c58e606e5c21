// The one place that reads and writes extensions (format/extension.hpp). Owns this invariant: whatever a peer wrote, what is
// found lies within the `kind_size` bytes of its message. An extension that contradicts itself is none, and its message has no kind.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "base/word.hpp"
#include "format/extension.hpp"

namespace ringmain {

struct Said {
    std::string_view extension;  // with its head; empty: there is none
    std::string_view kind;       // as its sender gave it
};

// What a user gives as a kind.
inline bool may_be_kind(std::string_view kind) {
    return kind.empty() || static_cast<uint8_t>(kind[0]) != kExtensionMark;
}

// What `said` begins with may change while we look at it: each byte is loaded once.
inline Said parts_of(std::string_view said) {
    uint8_t head[kExtensionHeadBytes] = {};
    if (said.empty()) [[likely]]
        return {};
    copy_out(head, reinterpret_cast<const std::byte*>(said.data()), std::min(said.size(), sizeof head));
    if (head[0] != kExtensionMark) return {{}, said};
    size_t size = kExtensionHeadBytes + head[1];
    if (size > said.size()) return {};
    return {said.substr(0, size), said.substr(size)};
}

// The item of this type, if the extension has one.
template <class Item>
std::optional<Item> item_of(std::string_view extension) {
    for (size_t at = kExtensionHeadBytes; at < extension.size();) {
        const auto* here = reinterpret_cast<const std::byte*>(extension.data() + at);
        uint8_t type;
        copy_out(&type, here, 1);
        size_t size = bytes_of_item(type);
        if (size == 0 || size > extension.size() - at) return {};
        if (type == Item::kType) {
            Item item;
            copy_out(&item, here, sizeof item);
            return item;
        }
        at += size;
    }
    return {};
}

// An extension of one item.
template <class Item>
class ExtensionOf {
    struct [[gnu::packed]] {
        uint8_t mark = kExtensionMark, size = sizeof(Item);
        Item item;
    } bytes_;

  public:
    explicit ExtensionOf(const Item& item) { bytes_.item = item; }
    operator std::string_view() const { return {reinterpret_cast<const char*>(&bytes_), sizeof bytes_}; }
};

// The item as a `traceparent`.
inline std::string traceparent_of(const TraceItem& trace) {
    std::string text = "00-";
    auto put = [&](const uint8_t* bytes, size_t count) {
        constexpr char kDigits[] = "0123456789abcdef";
        for (size_t i = 0; i < count; ++i) (text += kDigits[bytes[i] >> 4]) += kDigits[bytes[i] & 15];
    };
    put(trace.trace_id, sizeof trace.trace_id);
    put(trace.span_id, sizeof trace.span_id);
    put(&trace.flags, 1);
    return text.insert(35, "-").insert(52, "-");
}

}  // namespace ringmain
