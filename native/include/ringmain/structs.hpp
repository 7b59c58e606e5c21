// Topics of structs. A struct is described once, behind its definition and in its namespace:
//
//     struct Imu {
//         double t;
//         float gyro[3];
//         std::uint16_t id;
//     };
//     RINGMAIN_STRUCT(Imu, t, gyro, id)
//
//     ringmain::PublisherOf<Imu> imu("imu");
//     imu.send({.t = 0.5, .gyro = {1, 2, 3}, .id = 7}).value();
//
// The topic's schema then says where each member lies, and Python reads the messages as records of a numpy dtype. A topic
// whose structs lie otherwise is refused with a sentence that names the field. Owns this invariant: the text of a layout is the
// one that Python makes of the same struct (src/ringmain/typed/_struct_layout.py), to the byte.
#pragma once

#include <ringmain/publisher.hpp>
#include <ringmain/subscriber.hpp>

#include <array>
#include <bit>
#include <complex>
#include <cstring>
#include <string>
#include <type_traits>

namespace ringmain {

// What RINGMAIN_STRUCT gives: the struct's name, and where its members lie.
struct StructText {
    std::string name, layout;
};

template <class T>
concept Described = requires(const T* none) {
    { ringmain_struct(none) } -> std::same_as<StructText>;
};

namespace detail {

template <class T>
inline constexpr bool is_complex = false;
template <class T>
inline constexpr bool is_complex<std::complex<T>> = true;

// As numpy writes it: byte order, kind, size.
template <class T>
std::string scalar() {
    auto code = [](char kind) {
        return std::string(sizeof(T) == 1 ? "|" : "<") + kind + std::to_string(sizeof(T));
    };
    if constexpr (std::is_same_v<T, bool>)
        return code('b');
    else if constexpr (std::is_same_v<T, char>)
        return code('S');
    else if constexpr (std::is_same_v<T, std::byte>)
        return code('u');
    else if constexpr (std::is_enum_v<T>)
        return scalar<std::underlying_type_t<T>>();
    else if constexpr (is_complex<T>)
        return code('c');
    else if constexpr (std::is_floating_point_v<T>)
        return code('f');
    else
        return code(std::is_signed_v<T> ? 'i' : 'u');
}

template <class T>
inline constexpr bool is_field =
    (std::is_integral_v<T> && !std::is_same_v<T, wchar_t>) || std::is_enum_v<T> || std::is_same_v<T, float> ||
    std::is_same_v<T, double> || std::is_same_v<T, std::complex<float>> ||
    std::is_same_v<T, std::complex<double>>;

// What a member consists of, and how many there are of it in each direction.
template <class T>
struct Item {
    static std::string shape() { return ""; }
    static std::string type() {
        if constexpr (Described<T>) {
            return ringmain_struct(static_cast<const T*>(nullptr)).layout;
        } else {
            static_assert(
                is_field<T>,
                "a member is a number, a bool, an enum, a char array, a std::complex, a struct that "
                "RINGMAIN_STRUCT describes, or an array of these; long double and pointers mean nothing "
                "elsewhere");
            return scalar<T>();
        }
    }
};
template <class T, size_t N>
struct Item<T[N]> {
    static std::string shape() { return "," + std::to_string(N) + Item<T>::shape(); }
    static std::string type() { return Item<T>::type(); }
};
template <size_t N>
struct Item<char[N]> {  // a text of at most so many bytes
    static std::string shape() { return ""; }
    static std::string type() { return "|S" + std::to_string(N); }
};
template <class T, size_t N>
struct Item<std::array<T, N>> : Item<T[N]> {
    static_assert(sizeof(std::array<T, N>) == sizeof(T[N]));
};

template <class T>
std::string field(const char* name, size_t offset) {
    std::string shape = Item<T>::shape();
    if (!shape.empty()) shape = "[" + shape.substr(1) + "]";
    return std::string(name) + ":" + Item<T>::type() + shape + "@" + std::to_string(offset);
}

template <class T>
StructText struct_text(const char* name, std::initializer_list<std::string> fields) {
    static_assert(std::is_trivially_copyable_v<T>,
                  "only the bytes of a struct travel: it must be trivially copyable");
    static_assert(std::is_standard_layout_v<T>, "the members of a struct must lie where C puts them");
    static_assert(std::endian::native == std::endian::little);
    std::string layout = "{";
    for (const std::string& each : fields) layout += (layout.size() > 1 ? "," : "") + each;
    return {name, layout + "}" + std::to_string(sizeof(T))};
}

template <Described T>
const StructText& text_of() {
    static const StructText text = ringmain_struct(static_cast<const T*>(nullptr));
    return text;
}

}  // namespace detail

// Sends structs.
template <Described T>
class PublisherOf : public Publisher {
  public:
    explicit PublisherOf(std::string_view topic, const PublisherOptions& options = {})
        : Publisher(topic, options, detail::text_of<T>().name.c_str(), detail::text_of<T>().layout.c_str()) {}

    Result<uint64_t> send(const T& value) { return Publisher::send(std::as_bytes(std::span(&value, 1))); }
    Result<uint64_t> send(const T& value, std::string_view kind, std::chrono::nanoseconds timeout = forever,
                          const std::stop_token& token = {}) {
        return Publisher::send(std::as_bytes(std::span(&value, 1)), kind, timeout, token);
    }
    Result<uint64_t> try_send(const T& value, std::string_view kind = {}) {
        return Publisher::try_send(std::as_bytes(std::span(&value, 1)), kind);
    }
};

// A struct with its envelope.
template <Described T>
class Received : public Message {
  public:
    explicit Received(Message&& message) : Message(std::move(message)) {}
    T value() const {
        T value;
        std::memcpy(&value, data(), sizeof value);
        return value;
    }
};

// A struct in place, until it goes out of scope.
template <Described T>
class BorrowedOf : public Borrowed {
  public:
    explicit BorrowedOf(Borrowed&& borrowed) : Borrowed(std::move(borrowed)) {}
    const T& operator*() const noexcept { return *reinterpret_cast<const T*>(data()); }
    const T* operator->() const noexcept { return reinterpret_cast<const T*>(data()); }
};

// Receives structs. A message of another size cannot come: the topic's layout was compared, and is again in its next life.
template <Described T>
class SubscriberOf : public Subscriber {
    static_assert(alignof(T) <= 8, "messages lie at multiples of eight bytes");

  public:
    explicit SubscriberOf(std::string_view topic, const SubscriberOptions& options = {})
        : Subscriber(topic, options, detail::text_of<T>().name.c_str(), detail::text_of<T>().layout.c_str()) {
    }

    Result<Received<T>> receive(std::chrono::nanoseconds timeout = forever,
                                const std::stop_token& token = {}) {
        Result<Message> message = Subscriber::receive(timeout, token);
        if (!message) return message.error();
        return Received<T>(std::move(*message));
    }
    Result<Received<T>> try_receive() { return receive(std::chrono::nanoseconds(0)); }
    Result<BorrowedOf<T>> borrow(std::chrono::nanoseconds timeout = forever,
                                 const std::stop_token& token = {}) {
        Result<Borrowed> borrowed = Subscriber::borrow(timeout, token);
        if (!borrowed) return borrowed.error();
        return BorrowedOf<T>(std::move(*borrowed));
    }
    Result<BorrowedOf<T>> try_borrow() { return borrow(std::chrono::nanoseconds(0)); }
};

}  // namespace ringmain

// Up to 256 members. Each pass below rescans four times as often as the one before.
#define RINGMAIN_PARENS ()
#define RINGMAIN_EXPAND(...) \
    RINGMAIN_EXPAND3(RINGMAIN_EXPAND3(RINGMAIN_EXPAND3(RINGMAIN_EXPAND3(__VA_ARGS__))))
#define RINGMAIN_EXPAND3(...) \
    RINGMAIN_EXPAND2(RINGMAIN_EXPAND2(RINGMAIN_EXPAND2(RINGMAIN_EXPAND2(__VA_ARGS__))))
#define RINGMAIN_EXPAND2(...) \
    RINGMAIN_EXPAND1(RINGMAIN_EXPAND1(RINGMAIN_EXPAND1(RINGMAIN_EXPAND1(__VA_ARGS__))))
#define RINGMAIN_EXPAND1(...) \
    RINGMAIN_EXPAND0(RINGMAIN_EXPAND0(RINGMAIN_EXPAND0(RINGMAIN_EXPAND0(__VA_ARGS__))))
#define RINGMAIN_EXPAND0(...) __VA_ARGS__
#define RINGMAIN_FIELDS(Type, each, ...)                                       \
    ringmain::detail::field<decltype(Type::each)>(#each, offsetof(Type, each)) \
        __VA_OPT__(, RINGMAIN_FIELDS_AGAIN RINGMAIN_PARENS(Type, __VA_ARGS__))
#define RINGMAIN_FIELDS_AGAIN() RINGMAIN_FIELDS

#define RINGMAIN_STRUCT(Type, ...)                                                                         \
    [[maybe_unused]] inline ringmain::StructText ringmain_struct(const Type*) {                            \
        return ringmain::detail::struct_text<Type>(#Type,                                                  \
                                                   {RINGMAIN_EXPAND(RINGMAIN_FIELDS(Type, __VA_ARGS__))}); \
    }
