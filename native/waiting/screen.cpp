#include "waiting/screen.hpp"

#include <algorithm>

#include "waiting/blocking_reader.hpp"

namespace ringmain {

static bool is_one_of(const std::vector<std::string>& names, std::string_view text) {
    return std::ranges::find(names, text) != names.end();
}

bool Screen::skips(std::string_view text) const {
    return is_one_of(ignored, text) || (only && !is_one_of(*only, text));
}

bool BlockingReader::screened(const View& view) const {
    const auto* sender = reinterpret_cast<const char*>(view.sender());
    if (senders.active() && senders.skips({sender, view.sender_size})) return true;
    return kinds.active() && kinds.skips(view.said().kind);
}

}  // namespace ringmain
