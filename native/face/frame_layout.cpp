#include "face/frame_layout.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/text.hpp"
#include "face/failing.hpp"
#include "face/json.hpp"

namespace ringmain::face {

namespace {

constexpr uint64_t kMaxFrameBytes = uint64_t{1} << 36;

struct Wrong {
    std::string why;
};

[[noreturn]] void refuse(std::string why) { throw Refusal{RINGMAIN_INVALID_ARGUMENT, std::move(why)}; }

template <size_t size>
void copy_text(char (&to)[size], std::string_view from) {
    if (from.size() >= size) throw Wrong{"'" + printable(from.substr(0, 40)) + "' is too long a name"};
    to[from.copy(to, size - 1)] = 0;
}

template <size_t size>
std::string_view text_in(const char (&from)[size]) {
    return {from, strnlen(from, size)};
}

// The bytes of an item, of a dtype as numpy writes it: "|u1", "<f4", "<M8[ns]".
uint64_t item_bytes(std::string_view dtype) {
    bool order = !dtype.empty() && std::string_view("<|=").find(dtype[0]) != std::string_view::npos;
    std::string_view rest = dtype.substr(order ? 1 : 0);
    uint64_t count = 0;
    if (!rest.empty() && std::string_view("biufcSUVMm").find(rest[0]) != std::string_view::npos) {
        auto [end, error] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), count);
        bool unit = end != rest.data() + rest.size() && (rest[0] == 'M' || rest[0] == 'm') && *end == '[';
        if (error != std::errc() || (end != rest.data() + rest.size() && !unit) || count > kMaxFrameBytes)
            count = 0;
        if (rest[0] == 'U') count *= 4;
    }
    if (count == 0) throw Wrong{"'" + printable(dtype) + "' is not a dtype of numbers, as numpy writes it"};
    return count;
}

// What follows from the shape, where there are no gaps.
void fill_strides(ringmain_plane& view) {
    uint64_t stride = item_bytes(text_in(view.dtype));
    for (uint32_t i = view.dimensions; i-- > 0;) {
        view.strides[i] = stride;
        stride *= view.shape[i];
    }
}

void check_view(ringmain_plane& view, uint64_t size) {
    if (view.dimensions < 1 || view.dimensions > RINGMAIN_MAX_DIMENSIONS)
        throw Wrong{"a shape has 1 to 16 dimensions, not " + std::to_string(view.dimensions)};
    unsigned __int128 items = 1;
    for (uint32_t i = 0; i < view.dimensions; ++i) {
        items *= view.shape[i];
        if (items == 0 || items > kMaxFrameBytes)
            throw Wrong{"a shape's numbers are 1 or more, and their product at most 2^36"};
    }
    uint64_t* strides = view.strides;
    if (std::all_of(strides, strides + view.dimensions, [](uint64_t each) { return each == 0; }))
        fill_strides(view);
    unsigned __int128 last = item_bytes(text_in(view.dtype));
    for (uint32_t i = 0; i < view.dimensions; ++i) {
        if (strides[i] == 0) throw Wrong{"strides are 1 or more, or all 0"};
        last += static_cast<unsigned __int128>(view.shape[i] - 1) * strides[i];
    }
    if (view.offset + last > size)
        throw Wrong{"a view at " + std::to_string(view.offset) + " ends beyond its " + std::to_string(size) +
                    " bytes"};
}

void check(ringmain_layout& layout) {
    if (layout.size < 1 || layout.size > kMaxFrameBytes)
        throw Wrong{"a frame has between 1 byte and 64 GiB, not " + std::to_string(layout.size)};
    if (layout.plane_count > RINGMAIN_MAX_PLANES)
        throw Wrong{"an image has at most 4 planes, not " + std::to_string(layout.plane_count)};
    check_view(layout.array, layout.size);
    for (uint32_t i = 0; i < layout.plane_count; ++i) check_view(layout.planes[i], layout.size);
}

// They are written into JSON as they are.
void check_texts(const ringmain_layout& layout) {
    auto check_text = [](std::string_view text) {
        bool ends = text.size() < sizeof layout.format;
        if (!ends || !is_utf8(text) || text != printable(text) || text.find_first_of("\"\\") != text.npos)
            throw Wrong{"its texts are not those of a layout"};
    };
    check_text(text_in(layout.format));
    check_text(text_in(layout.array.dtype));
    for (uint32_t i = 0; i < layout.plane_count; ++i) {
        check_text(text_in(layout.planes[i].name));
        check_text(text_in(layout.planes[i].dtype));
    }
}

ringmain_plane view_of(std::string_view dtype, std::initializer_list<uint64_t> shape,
                       std::initializer_list<uint64_t> strides = {}, std::string_view name = {},
                       uint64_t offset = 0) {
    ringmain_plane view = {};
    copy_text(view.name, name);
    copy_text(view.dtype, dtype);
    view.offset = offset;
    view.dimensions = static_cast<uint32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), view.shape);
    std::copy(strides.begin(), strides.end(), view.strides);
    return view;
}

// The channels of the first plane, and of planar formats the planes after "y" with their samples per 2 x 2 pixels.
struct Format {
    const char* name;
    uint64_t channels;
    std::pair<const char*, uint64_t> planes[2];
};
constexpr Format kFormats[] = {{"bgr", 3, {}},
                               {"bgra", 4, {}},
                               {"gray", 1, {}},
                               {"i420", 1, {{"u", 1}, {"v", 1}}},
                               {"nv12", 1, {{"uv", 2}, {}}},
                               {"nv21", 1, {{"vu", 2}, {}}},
                               {"rgb", 3, {}},
                               {"rgba", 4, {}}};

ringmain_plane plane(uint64_t height, uint64_t width, uint64_t samples, uint64_t stride,
                     std::string_view name = {}, uint64_t offset = 0) {
    if (samples == 1) return view_of("|u1", {height, width}, {stride, 1}, name, offset);
    return view_of("|u1", {height, width, samples}, {stride, samples, 1}, name, offset);
}

ringmain_layout image(std::string_view name, uint32_t width, uint32_t height, uint64_t stride) {
    const Format* format = std::ranges::find(kFormats, name, &Format::name);
    if (format == std::end(kFormats)) {
        std::string all;
        for (const Format& each : kFormats) all += (all.empty() ? "" : ", ") + std::string(each.name);
        refuse("an image's format is one of " + all + ", not '" + printable(name.substr(0, 40)) + "'");
    }
    if (width == 0 || height == 0) refuse("an image has a width and a height of 1 pixel or more");
    uint64_t row = width * format->channels;
    if (stride == 0) stride = row;
    if (stride < row)
        refuse("a row of this image has " + std::to_string(row) +
               " bytes, so stride=" + std::to_string(stride) + " is too short");
    if (stride > kMaxFrameBytes / height)
        refuse("a frame has between 1 byte and 64 GiB, and this image more");
    bool planar = format->planes[0].first;
    if (planar && (width % 2 || height % 2))
        refuse(std::string(format->name) + " has one colour sample for 2 x 2 pixels: " +
               std::to_string(width) + " x " + std::to_string(height) + " is odd");
    ringmain_layout layout = {};
    copy_text(layout.format, name);
    layout.width = width;
    layout.height = height;
    layout.stride = stride;
    layout.size = stride * height;
    layout.array = plane(height, width, format->channels, stride);
    if (!planar) return layout;
    layout.planes[layout.plane_count++] = plane(height, width, format->channels, stride, "y");
    for (auto [part, samples] : format->planes) {
        if (!part) continue;
        uint64_t across = stride * samples / 2;
        layout.planes[layout.plane_count++] =
            plane(height / 2, width / 2, samples, across, part, layout.size);
        layout.size += across * (height / 2);
    }
    layout.array = view_of("|u1", {layout.size});
    return layout;
}

std::string numbers(const uint64_t* all, size_t count) {
    std::string text = "[";
    for (size_t i = 0; i < count; ++i) text += (i ? "," : "") + std::to_string(all[i]);
    return text + "]";
}

// Without gaps, Python leaves the strides of arrays and bytes away, and writes those of the planes of images.
std::string view_text(const ringmain_plane& view, bool of_image) {
    ringmain_plane dense = view;
    fill_strides(dense);
    bool gaps = !std::equal(view.strides, view.strides + view.dimensions, dense.strides);
    size_t strides = gaps || (of_image && view.dimensions > 1) ? view.dimensions : 0;
    return "{\"shape\":" + numbers(view.shape, view.dimensions) + ",\"dtype\":\"" + view.dtype +
           "\",\"offset\":" + std::to_string(view.offset) + ",\"strides\":" + numbers(view.strides, strides) +
           "}";
}

uint64_t number(const std::optional<Json>& value) {
    std::optional<uint64_t> found = value ? value->number() : std::nullopt;
    if (!found) throw Wrong{"a number is missing"};
    return *found;
}

std::string string(const std::optional<Json>& value) {
    std::optional<std::string> found = value ? value->string() : std::nullopt;
    if (!found) throw Wrong{"a text is missing"};
    return *found;
}

uint32_t read_numbers(const std::optional<Json>& value, uint64_t (&to)[RINGMAIN_MAX_DIMENSIONS]) {
    uint32_t count = 0;
    bool whole = value && value->each([&](std::string_view, const Json& each) {
        if (count == RINGMAIN_MAX_DIMENSIONS) throw Wrong{"a shape has 1 to 16 dimensions"};
        to[count++] = number(each);
    });
    if (!whole) throw Wrong{"a list of numbers is missing"};
    return count;
}

ringmain_plane read_view(std::string_view name, const Json& json) {
    ringmain_plane view = {};
    copy_text(view.name, name);
    copy_text(view.dtype, string(json.value("dtype")));
    view.offset = number(json.value("offset"));
    view.dimensions = read_numbers(json.value("shape"), view.shape);
    uint32_t strides = read_numbers(json.value("strides"), view.strides);
    if (strides != 0 && strides != view.dimensions) throw Wrong{"strides do not fit the shape"};
    return view;
}

ringmain_layout read(const Json& json) {
    ringmain_layout layout = {};
    copy_text(layout.format, string(json.value("format")));
    layout.size = number(json.value("size"));
    layout.width = static_cast<uint32_t>(std::min<uint64_t>(number(json.value("width")), UINT32_MAX));
    layout.height = static_cast<uint32_t>(std::min<uint64_t>(number(json.value("height")), UINT32_MAX));
    layout.stride = number(json.value("stride"));
    std::optional<Json> array = json.value("array"), planes = json.value("planes");
    if (!array || !planes) throw Wrong{"its views are missing"};
    layout.array = read_view("", *array);
    bool whole = planes->each([&](std::string_view name, const Json& each) {
        if (layout.plane_count == RINGMAIN_MAX_PLANES) throw Wrong{"an image has at most 4 planes"};
        layout.planes[layout.plane_count++] = read_view(name, each);
    });
    if (!whole) throw Wrong{"its planes are no object"};
    check(layout);
    return layout;
}

}  // namespace

ringmain_layout checked_layout(const ringmain_layout* given) {
    if (!given) refuse("a frame publisher needs a layout: see ringmain_layout_of_image and its like");
    ringmain_layout layout = *given;
    // The planes of an image may have been moved apart: as an array it is all of its bytes.
    if (layout.plane_count > 0) layout.array = view_of("|u1", {layout.size});
    try {
        if (layout.plane_count <= RINGMAIN_MAX_PLANES) check_texts(layout);
        check(layout);
    } catch (const Wrong& wrong) {
        refuse("the layout of a frame is refused: " + wrong.why);
    }
    return layout;
}

ringmain_layout layout_from(std::string_view json, const std::string& topic, uint64_t buffer_bytes) try {
    ringmain_layout layout = read(Json(json));
    if (layout.size > buffer_bytes)
        throw Wrong{"its " + std::to_string(layout.size) + " bytes do not fit the buffers of " +
                    std::to_string(buffer_bytes)};
    return layout;
} catch (const Wrong& wrong) {
    throw Refusal{RINGMAIN_CORRUPT, "the layout of frame topic '" + topic + "' is refused: " + wrong.why};
}

std::string layout_text(const ringmain_layout& layout) {
    bool image = layout.width != 0;
    std::string planes;
    for (uint32_t i = 0; i < layout.plane_count; ++i)
        planes += std::string(i ? "," : "") + "\"" + layout.planes[i].name +
                  "\":" + view_text(layout.planes[i], image);
    return std::string("{\"format\":\"") + layout.format + "\",\"size\":" + std::to_string(layout.size) +
           ",\"array\":" + view_text(layout.array, image) + ",\"planes\":{" + planes +
           "},\"width\":" + std::to_string(layout.width) + ",\"height\":" + std::to_string(layout.height) +
           ",\"stride\":" + std::to_string(layout.stride) + "}";
}

}  // namespace ringmain::face

using namespace ringmain::face;

extern "C" {

RINGMAIN_API ringmain_status ringmain_layout_of_bytes(uint64_t size, ringmain_layout* layout) {
    return guarded([&] {
        ringmain_layout made = {};
        copy_text(made.format, "bytes");
        made.size = size;
        made.array = view_of("|u1", {size});
        *layout = checked_layout(&made);
        return RINGMAIN_OK;
    });
}

RINGMAIN_API ringmain_status ringmain_layout_of_array(const uint64_t* shape, size_t dimensions,
                                                      const char* dtype, ringmain_layout* layout) {
    return guarded([&] {
        ringmain_layout made = {};
        copy_text(made.format, "array");
        std::string_view type = dtype ? dtype : "|u1";
        if (type.size() >= sizeof made.array.dtype || dimensions > RINGMAIN_MAX_DIMENSIONS)
            return invalid("a frame's array has at most 16 dimensions, and a dtype such as \"<f4\"");
        copy_text(made.array.dtype, type);
        made.array.dimensions = static_cast<uint32_t>(dimensions);
        unsigned __int128 size = 1;
        for (size_t i = 0; i < dimensions; ++i) {
            made.array.shape[i] = shape[i];
            size = std::min<unsigned __int128>(size * shape[i], UINT64_MAX);
        }
        try {
            size *= item_bytes(type);
        } catch (const Wrong& wrong) {
            return invalid(wrong.why);
        }
        made.size = static_cast<uint64_t>(std::min<unsigned __int128>(size, UINT64_MAX));
        *layout = checked_layout(&made);
        return RINGMAIN_OK;
    });
}

RINGMAIN_API ringmain_status ringmain_layout_of_image(const char* format, uint32_t width, uint32_t height,
                                                      uint64_t stride, ringmain_layout* layout) {
    return guarded([&] {
        ringmain_layout made = image(format ? format : "", width, height, stride);
        *layout = checked_layout(&made);
        return RINGMAIN_OK;
    });
}
}
