#include "face/schema.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/text.hpp"
#include "face/failing.hpp"
#include "face/json.hpp"

namespace ringmain::face {

namespace {

struct Layout;

struct Field {
    std::string name, type, shape;   // `type`: as numpy writes it, or the text of a struct
    std::shared_ptr<Layout> fields;  // of a struct
    std::string offset;

    std::string text() const { return type + shape; }
    std::string described() const { return text() + " at byte " + offset; }
};

struct Layout {
    std::vector<Field> fields;
    std::string size, text;
};

// The grammar is at the head of src/ringmain/typed/_struct_layout.py.
class Parser {
    static constexpr int kDeepest = 32;
    std::string_view all_, at_;
    int depth_ = 0;

    [[noreturn]] void refuse(const std::string& expected) const {
        throw Refusal{RINGMAIN_CORRUPT, "not the layout of a struct: expected " + expected + " at '" +
                                            printable(at_.substr(0, 20)) + "'"};
    }
    void sign(char sign) {
        if (!at_.starts_with(sign)) refuse(std::string("'") + sign + "'");
        at_.remove_prefix(1);
    }
    std::string take(size_t size, const char* expected) {
        if (size == 0) refuse(expected);
        std::string taken(at_.substr(0, size));
        at_.remove_prefix(taken.size());
        return taken;
    }
    size_t before(std::string_view signs) const { return std::min(at_.find_first_of(signs), at_.size()); }
    size_t digits(std::string_view more = "") const {
        return std::min(at_.find_first_not_of(std::string("0123456789") + std::string(more)), at_.size());
    }

    Field field() {
        Field field;
        field.name = take(before("\"\\{}[]:,@ "), "the name of a field");
        sign(':');
        if (at_.starts_with('{')) {
            field.fields = std::make_shared<Layout>(structure());
            field.type = field.fields->text;
        } else {
            field.type = take(before("[@,}"), "a type");
        }
        if (at_.starts_with('[')) {
            // A unit of time is in brackets, too: <M8[ns].
            size_t inside = std::min(at_.find(']'), at_.size() - 1) + 1;
            bool unit = at_.substr(1, inside - 2).find_first_not_of("0123456789,") != std::string_view::npos;
            (unit ? field.type : field.shape) += take(inside, "a shape");
            if (unit && at_.starts_with('['))
                field.shape = take(std::min(at_.find(']'), at_.size() - 1) + 1, "a shape");
        }
        sign('@');
        field.offset = take(digits(), "an offset");
        return field;
    }
    Layout structure() {
        if (++depth_ > kDeepest)
            refuse("at most " + std::to_string(kDeepest) + " structs inside of each other");
        std::string_view begin = at_;
        Layout layout;
        sign('{');
        layout.fields.push_back(field());
        while (at_.starts_with(',')) {
            at_.remove_prefix(1);
            layout.fields.push_back(field());
        }
        sign('}');
        --depth_;
        layout.size = take(digits(), "a size");
        layout.text = begin.substr(0, begin.size() - at_.size());
        return layout;
    }

  public:
    explicit Parser(std::string_view text) : all_(text), at_(text) {}
    Layout layout() {
        Layout layout = structure();
        if (!at_.empty()) refuse("nothing more");
        return layout;
    }
};

std::string quoted(const std::string& name) { return "'" + printable(name) + "'"; }

// A line for each field.
void differences(const Layout& writer, const Layout& reader, const std::string& path,
                 std::vector<std::string>& lines) {
    auto find = [](const Layout& layout, const std::string& name) {
        return std::ranges::find(layout.fields, name, &Field::name);
    };
    for (const Field& field : reader.fields) {
        std::string name = path + field.name;
        auto there = find(writer, field.name);
        if (there == writer.fields.end()) {
            lines.push_back("field " + quoted(name) + ": read, and not written");
        } else if (field.fields && there->fields && field.text() != there->text()) {
            differences(*there->fields, *field.fields, name + ".", lines);
            auto shown = [](const std::string& shape) { return shape.empty() ? "one" : shape; };
            if (field.shape != there->shape)
                lines.push_back("field " + quoted(name) + ": " + shown(there->shape) + " written, " +
                                shown(field.shape) + " read");
        } else if (field.text() != there->text() || field.offset != there->offset) {
            lines.push_back("field " + quoted(name) + ": written as " + there->described() + ", read as " +
                            field.described());
        }
    }
    for (const Field& field : writer.fields)
        if (find(reader, field.name) == reader.fields.end())
            lines.push_back("field " + quoted(path + field.name) + ": written, and not read");
    if (writer.size != reader.size)
        lines.push_back((path.empty() ? "struct" : "field " + quoted(path.substr(0, path.size() - 1))) +
                        ": " + writer.size + " bytes written, " + reader.size + " read");
}

// What of a schema is compared.
struct Parts {
    std::string codec, type_name, layout;

    explicit Parts(std::string_view schema) {
        Json json(schema);
        auto text = [](std::optional<Json> value) {
            return value ? value->string().value_or("") : std::string();
        };
        codec = text(json.value("codec"));
        type_name = text(json.value("type_name"));
        if (std::optional<Json> params = json.value("params")) layout = text(params->value("layout"));
    }
    std::string described() const { return printable(type_name) + " (" + printable(codec) + ")"; }
};

}  // namespace

std::string struct_schema(std::string_view name, std::string_view layout) {
    (void)Parser(layout).layout();
    if (name.empty()) name = "struct";
    if (name.find_first_of("\"\\") != std::string_view::npos || !is_utf8(name))
        throw Refusal{RINGMAIN_INVALID_ARGUMENT,
                      "a struct's name is one that C++ could have, not '" + printable(name) + "'"};
    return "{\"codec\":\"struct\",\"params\":{\"layout\":\"" + std::string(layout) +
           "\"},\"ringmain\":1,\"type_name\":\"" + std::string(name) + "\"}";
}

void check_compatible(std::string_view topic, std::string_view written, std::string_view read) {
    Parts writer(written), reader(read);
    std::vector<std::string> lines;
    if (reader.codec == "bytes") return;
    if (writer.codec != reader.codec)
        lines.push_back("codec: written with " + printable(writer.codec) + " version 1, read with " +
                        printable(reader.codec) + " version 1");
    else if (writer.layout != reader.layout)
        differences(Parser(writer.layout).layout(), Parser(reader.layout).layout(), "", lines);
    if (lines.empty()) return;  // also the same fields in another order
    std::string text = "topic '" + std::string(topic) + "' is written as " + writer.described() +
                       ", which does not read as " + reader.described() + ":";
    for (const std::string& line : lines) text += "\n  - " + line;
    throw Refusal{RINGMAIN_SCHEMA_MISMATCH, text};
}

}  // namespace ringmain::face
