// How the bytes of a frame are arranged: what src/ringmain/frames/_layout.py says of it, for programs without Python. A test
// compares the two. Owns the same invariant: every view of a layout is within its size, so nothing made from it reaches outside
// the buffer.
#pragma once

#include <ringmain/ringmain.h>

#include <string>
#include <string_view>

namespace ringmain::face {

// Each throws a Refusal: of what the caller gave, or of what another process wrote.
ringmain_layout checked_layout(const ringmain_layout* given);
ringmain_layout layout_from(std::string_view json, const std::string& topic, uint64_t buffer_bytes);

// As Python's FrameLayout.to_bytes writes it.
std::string layout_text(const ringmain_layout& layout);

}  // namespace ringmain::face
