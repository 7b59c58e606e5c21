// The schema of a topic of structs, and how two layouts differ: what src/ringmain/typed says of them, for programs without
// Python. A test compares the two.
#pragma once

#include <string>
#include <string_view>

namespace ringmain::face {

// As Python's Schema.to_bytes writes it. Throws a Refusal if the layout is none.
std::string struct_schema(std::string_view name, std::string_view layout);

// Throws a Refusal, as SchemaMismatch says it, if messages of the one schema do not read as structs of the other.
void check_compatible(std::string_view topic, std::string_view written, std::string_view read);

}  // namespace ringmain::face
