// As much JSON as schemas and layouts of frames are written in: finds the value of a path, in a text that another process
// wrote. Owns this invariant: no text makes it read outside of itself, nor recurse without a limit.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ringmain::face {

// A JSON value within its text, unparsed.
class Json {
    std::string_view text_;

    static constexpr int kDeepest = 64;

    static void skip_space(std::string_view& at) {
        size_t space = at.find_first_not_of(" \t\r\n");
        at.remove_prefix(space == std::string_view::npos ? at.size() : space);
    }
    static bool take(std::string_view& at, char sign) {
        skip_space(at);
        if (!at.starts_with(sign)) return false;
        at.remove_prefix(1);
        return true;
    }
    // The string at the beginning, with its quotes.
    static std::optional<std::string_view> take_string(std::string_view& at) {
        skip_space(at);
        if (!at.starts_with('"')) return std::nullopt;
        for (size_t i = 1; i < at.size(); ++i) {
            if (at[i] == '\\')
                ++i;
            else if (at[i] == '"') {
                std::string_view found = at.substr(0, i + 1);
                at.remove_prefix(i + 1);
                return found;
            }
        }
        return std::nullopt;
    }
    // The value at the beginning.
    static std::optional<std::string_view> take_value(std::string_view& at, int depth) {
        skip_space(at);
        std::string_view begin = at;
        if (depth > kDeepest || at.empty()) return std::nullopt;
        if (at.front() == '"') return take_string(at);
        if (at.front() == '{' || at.front() == '[') {
            char end = at.front() == '{' ? '}' : ']';
            bool named = at.front() == '{';
            at.remove_prefix(1);
            for (bool first = true; !take(at, end); first = false) {
                if (!first && !take(at, ',')) return std::nullopt;
                if (named && (!take_string(at) || !take(at, ':'))) return std::nullopt;
                if (!take_value(at, depth + 1)) return std::nullopt;
            }
        } else {
            size_t size = at.find_first_of(",]} \t\r\n");
            if (size == 0) return std::nullopt;
            at.remove_prefix(size == std::string_view::npos ? at.size() : size);
        }
        return begin.substr(0, begin.size() - at.size());
    }

  public:
    explicit Json(std::string_view text) : text_(text) {}

    // The value of a name in an object; none if there is none, or this is no object.
    std::optional<Json> value(std::string_view name) const {
        std::string_view at = text_;
        if (!take(at, '{')) return std::nullopt;
        for (bool first = true; !take(at, '}'); first = false) {
            if (!first && !take(at, ',')) return std::nullopt;
            std::optional<std::string_view> key = take_string(at), value;
            if (!key || !take(at, ':') || !(value = take_value(at, 0))) return std::nullopt;
            if (key->substr(1, key->size() - 2) == name) return Json(*value);
        }
        return std::nullopt;
    }

    // Calls `call(name, value)` for each value of an object or a list, whose values have no names. False: it is neither.
    template <class Call>
    bool each(Call call) const {
        std::string_view at = text_;
        bool named = take(at, '{');
        if (!named && !take(at, '[')) return false;
        for (bool first = true; !take(at, named ? '}' : ']'); first = false) {
            if (!first && !take(at, ',')) return false;
            std::optional<std::string_view> name, value;
            if (named && (!(name = take_string(at)) || !take(at, ':'))) return false;
            if (!(value = take_value(at, 0))) return false;
            call(name ? name->substr(1, name->size() - 2) : std::string_view(), Json(*value));
        }
        return true;
    }

    // A number that is whole and not negative.
    std::optional<uint64_t> number() const {
        uint64_t found = 0;
        auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), found);
        if (error != std::errc() || end != text_.data() + text_.size()) return std::nullopt;
        return found;
    }

    // A string without its quotes. Of the escapes, those that such texts have.
    std::optional<std::string> string() const {
        if (text_.size() < 2 || text_.front() != '"') return std::nullopt;
        std::string out;
        for (size_t i = 1; i + 1 < text_.size(); ++i) {
            if (text_[i] == '\\' &&
                (++i + 1 >= text_.size() || (text_[i] != '"' && text_[i] != '\\' && text_[i] != '/')))
                return std::nullopt;
            out += text_[i];
        }
        return out;
    }
};

}  // namespace ringmain::face
