// MessagePack messages to columns, in one pass and without an object for each value. A `Column` is a tree that follows a
// topic's schema; `take` appends one message to all columns of the tree.
//
// Invariant: a message is taken only where msgspec would accept it, and then with the same values. What is not plainly so (a
// required field that is missing, another type, a number that does not fit, text that is not UTF-8) is refused, leaves null
// in every column, and is decoded by msgspec, which also knows the reason.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace ringmain {

// The bytes of one message, of which `at` is the next.
struct Packed {
    const uint8_t* at;
    const uint8_t* end;

    bool has(size_t bytes) const { return static_cast<size_t>(end - at) >= bytes; }

    template <class T>
    bool number(T& out) {  // big-endian
        if (!has(sizeof(T))) return false;
        uint64_t bits = 0;
        for (size_t i = 0; i < sizeof(T); ++i) bits = bits << 8 | at[i];
        at += sizeof(T);
        out = static_cast<T>(bits);
        return true;
    }

    template <class T>
    bool length(uint32_t& out) {
        T value;
        if (!number(value)) return false;
        out = value;
        return true;
    }

    bool integer(int64_t& out) {
        if (!has(1)) return false;
        uint8_t head = *at++;
        if (head < 0x80 || head >= 0xe0) {
            out = static_cast<int8_t>(head);
            return true;
        }
        switch (head) {
            case 0xcc:
                return widened<uint8_t>(out);
            case 0xcd:
                return widened<uint16_t>(out);
            case 0xce:
                return widened<uint32_t>(out);
            case 0xcf:
                return widened<uint64_t>(out) && out >= 0;  // what is larger has no column
            case 0xd0:
                return widened<int8_t>(out);
            case 0xd1:
                return widened<int16_t>(out);
            case 0xd2:
                return widened<int32_t>(out);
            case 0xd3:
                return widened<int64_t>(out);
        }
        return false;
    }

    bool real(double& out) {  // also of a whole number
        if (!has(1)) return false;
        if (*at == 0xcb || *at == 0xca) {
            bool wide = *at++ == 0xcb;
            uint64_t bits = 0;
            uint32_t low = 0;
            if (!(wide ? number(bits) : number(low))) return false;
            float narrow;
            std::memcpy(&narrow, &low, sizeof narrow);
            if (wide)
                std::memcpy(&out, &bits, sizeof out);
            else
                out = narrow;
            return true;
        }
        int64_t whole;
        if (!integer(whole)) return false;
        out = static_cast<double>(whole);
        return true;
    }

    bool text(std::string_view& out) {
        if (!has(1)) return false;
        uint8_t head = *at++;
        uint32_t size = head & 0x1f;
        bool known = (head & 0xe0) == 0xa0 || (head == 0xd9 && length<uint8_t>(size)) ||
                     (head == 0xda && length<uint16_t>(size)) || (head == 0xdb && length<uint32_t>(size));
        return known && bytes(size, out);
    }

    bool binary(std::string_view& out) {
        if (!has(1)) return false;
        uint8_t head = *at++;
        uint32_t size = 0;
        bool known = (head == 0xc4 && length<uint8_t>(size)) || (head == 0xc5 && length<uint16_t>(size)) ||
                     (head == 0xc6 && length<uint32_t>(size));
        return known && bytes(size, out);
    }

    bool array(uint32_t& size) { return head_of(size, 0x90, 0xdc); }
    bool map(uint32_t& size) { return head_of(size, 0x80, 0xde); }

    bool boolean(bool& out) {
        if (!has(1) || (*at | 1) != 0xc3) return false;
        out = *at++ == 0xc3;
        return true;
    }

    bool skip(int depth = 0) {
        if (!has(1) || depth > 32) return false;
        uint8_t head = *at;
        uint32_t size;
        std::string_view ignored;
        if (head < 0x80 || head >= 0xe0 || head == 0xc0 || head == 0xc2 || head == 0xc3) return ++at, true;
        if ((head & 0xe0) == 0xa0 || (head >= 0xd9 && head <= 0xdb)) return text(ignored);
        if (head >= 0xc4 && head <= 0xc6) return binary(ignored);
        if (head >= 0xca && head <= 0xd3) {
            static constexpr uint8_t kSizes[] = {4, 8, 1, 2, 4, 8, 1, 2, 4, 8};
            return ++at, bytes(kSizes[head - 0xca], ignored);
        }
        uint32_t per_item = (head & 0xf0) == 0x80 || head >= 0xde ? 2 : 1;
        if (!(per_item == 2 ? map(size) : array(size))) return false;  // also of an extension type
        for (uint64_t left = uint64_t{size} * per_item; left; --left)
            if (!skip(depth + 1)) return false;
        return true;
    }

  private:
    template <class T>
    bool widened(int64_t& out) {
        T value;
        if (!number(value)) return false;
        out = static_cast<int64_t>(value);
        return true;
    }
    bool bytes(uint32_t size, std::string_view& out) {
        if (!has(size)) return false;
        out = {reinterpret_cast<const char*>(at), size};
        at += size;
        return true;
    }
    bool head_of(uint32_t& size, uint8_t small, uint8_t large) {
        if (!has(1)) return false;
        uint8_t head = *at++;
        size = head & 0x0f;
        return (head & 0xf0) == small || (head == large && length<uint16_t>(size)) ||
               (head == large + 1 && length<uint32_t>(size));
    }
};

// As Python's decoder has it: no surrogates, nothing longer than needed, nothing above U+10FFFF.
inline bool is_utf8(std::string_view text) {
    auto at = reinterpret_cast<const uint8_t*>(text.data()), end = at + text.size();
    while (at < end) {
        uint64_t eight;
        if (end - at >= 8 && (std::memcpy(&eight, at, 8), (eight & 0x8080808080808080) == 0)) {
            at += 8;
            continue;
        }
        uint8_t head = *at++;
        if (head < 0x80) continue;
        int more = head >= 0xf0 ? 3 : head >= 0xe0 ? 2 : 1;
        if (head < 0xc2 || head > 0xf4 || end - at < more) return false;
        uint8_t low = head == 0xe0 ? 0xa0 : head == 0xf0 ? 0x90 : 0x80;
        uint8_t high = head == 0xed ? 0x9f : head == 0xf4 ? 0x8f : 0xbf;
        if (at[0] < low || at[0] > high) return false;
        for (int i = 1; i < more; ++i)
            if ((at[i] & 0xc0) != 0x80) return false;
        at += more;
    }
    return true;
}

struct Column {
    enum Kind : char {
        boolean = 'b',
        integer = 'i',
        real = 'f',
        text = 's',
        bytes = 'y',
        list = 'l',
        tuple = 't',   // an array with a value for each child
        record = 'r',  // a map, whose children are found by their keys
    };
    static constexpr size_t kMaxFields = 64;  // of a record: one bit each says which were there

    Kind kind;
    bool nullable;
    bool optional;  // of a record's field: null where it is missing
    std::string key;
    std::vector<Column> children;

    int64_t rows = 0;
    std::vector<int64_t> nulls;  // which rows
    std::string data;            // numbers of 8 bytes, a byte for each bool, or the bytes of all texts
    std::vector<int32_t> offsets{0};

    // A message, whole. Refused: false, and a null row.
    bool take(const uint8_t* begin, const uint8_t* end) {
        int64_t before = rows;
        Packed in{begin, end};
        if (value(in) && in.at == in.end) return true;
        cut(before);
        append_null();
        return false;
    }

  private:
    template <class T>
    bool append(const T& value) {
        data.append(reinterpret_cast<const char*>(&value), sizeof value);
        ++rows;
        return true;
    }

    bool append_bytes(std::string_view value) {
        if (value.size() > INT32_MAX - data.size()) return false;
        data.append(value);
        offsets.push_back(static_cast<int32_t>(data.size()));
        ++rows;
        return true;
    }

    bool value(Packed& in) {
        if (nullable && in.has(1) && *in.at == 0xc0) {
            ++in.at;
            append_null();
            return true;
        }
        switch (kind) {
            case boolean: {
                bool found;
                return in.boolean(found) && append(static_cast<char>(found));
            }
            case integer: {
                int64_t found;
                return in.integer(found) && append(found);
            }
            case real: {
                double found;
                return in.real(found) && append(found);
            }
            case text: {
                std::string_view found;
                return in.text(found) && is_utf8(found) && append_bytes(found);
            }
            case bytes: {
                std::string_view found;
                return in.binary(found) && append_bytes(found);
            }
            case list:
                return items(in);
            case tuple:
                return in_order(in);
            case record:
                return by_key(in);
        }
        return false;
    }

    bool items(Packed& in) {
        uint32_t size;
        if (!in.array(size)) return false;
        for (; size; --size)
            if (!children[0].value(in)) return false;
        if (children[0].rows > INT32_MAX) return false;
        offsets.push_back(static_cast<int32_t>(children[0].rows));
        ++rows;
        return true;
    }

    bool in_order(Packed& in) {
        uint32_t size;
        if (!in.array(size) || size != children.size()) return false;
        for (Column& child : children)
            if (!child.value(in)) return false;
        ++rows;
        return true;
    }

    bool by_key(Packed& in) {
        uint32_t size;
        if (!in.map(size)) return false;
        uint64_t seen = 0;
        size_t next = 0;  // writers keep the order of the fields
        for (; size; --size) {
            std::string_view name;
            if (!in.text(name)) return false;
            size_t at = next < children.size() && children[next].key == name ? next : 0;
            while (at < children.size() && children[at].key != name) ++at;
            if (at == children.size()) {
                if (!in.skip()) return false;
                continue;
            }
            if (seen >> at & 1 || !children[at].value(in)) return false;
            seen |= uint64_t{1} << at;
            next = at + 1;
        }
        for (size_t at = 0; at < children.size(); ++at) {
            if (seen >> at & 1) continue;
            if (!children[at].optional) return false;
            children[at].append_null();
        }
        ++rows;
        return true;
    }

    void append_null() {
        nulls.push_back(rows++);
        switch (kind) {
            case boolean:
                data.push_back(0);
                break;
            case integer:
            case real:
                data.append(8, 0);
                break;
            case text:
            case bytes:
            case list:
                offsets.push_back(offsets.back());
                break;
            case tuple:
            case record:
                for (Column& child : children) child.append_null();
        }
    }

    // Forget all rows from this one on, also those that are only partly there.
    void cut(int64_t from) {
        rows = from;
        while (!nulls.empty() && nulls.back() >= from) nulls.pop_back();
        size_t kept = static_cast<size_t>(from);
        switch (kind) {
            case boolean:
                data.resize(kept);
                break;
            case integer:
            case real:
                data.resize(kept * 8);
                break;
            case text:
            case bytes:
                offsets.resize(kept + 1);
                data.resize(static_cast<size_t>(offsets.back()));
                break;
            case list:
                offsets.resize(kept + 1);
                children[0].cut(offsets.back());
                break;
            case tuple:
            case record:
                for (Column& child : children) child.cut(from);
        }
    }
};

}  // namespace ringmain
