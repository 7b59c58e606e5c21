// What a reader skips by the texts of a message's envelope, before anything is copied.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ringmain {

// What is skipped by one of the two texts of an envelope.
struct Screen {
    std::vector<std::string> ignored;
    std::optional<std::vector<std::string>> only;  // none: all that is not ignored

    bool active() const { return !ignored.empty() || only; }
    bool skips(std::string_view text) const;
};

}  // namespace ringmain
