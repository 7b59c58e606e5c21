#include "waiting/screen.hpp"

#include <cstring>

#include "rule/kept.hpp"
#include "waiting/blocking_reader.hpp"

namespace ringmain {

static bool is_one_of(const std::vector<std::string>& names, const std::byte* text, size_t size) {
    for (const std::string& name : names)
        if (name.size() == size && std::memcmp(name.data(), text, size) == 0) return true;
    return false;
}

bool Screen::skips(const std::byte* text, size_t size) const {
    return is_one_of(ignored, text, size) || (only && !is_one_of(*only, text, size));
}

bool BlockingReader::screened(const View& view) const {
    if (senders.active() && senders.skips(view.sender(), view.sender_size)) return true;
    if (!kinds.active()) return false;
    return kinds.skips(view.kind(),
                       bare_kind_size(reinterpret_cast<const char*>(view.kind()), view.kind_size));
}

}  // namespace ringmain
