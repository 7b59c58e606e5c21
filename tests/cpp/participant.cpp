// A participant in C++ that does what the lines on its standard input say, and answers each with a line: the other side of
// tests/cpp/test_conformance.py.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <optional>
#include <ringmain/ringmain.hpp>
#include <sstream>
#include <thread>

namespace robot {

enum class Mode : std::uint8_t { idle, driving };
struct Pose {
    float x, y;
};
RINGMAIN_STRUCT(Pose, x, y)
struct Imu {
    double t;
    float gyro[3];
    std::uint16_t id;
    bool ok;
    Mode mode;
    char name[8];
    Pose path[2];
};
RINGMAIN_STRUCT(Imu, t, gyro, id, ok, mode, name, path)

}  // namespace robot

namespace {

using Words = std::map<std::string, std::string>;

std::optional<ringmain::Publisher> publisher;
std::optional<ringmain::PublisherOf<robot::Imu>> imu_out;
std::optional<ringmain::Subscriber> subscriber;
std::optional<ringmain::SubscriberOf<robot::Imu>> imu_in;
std::optional<ringmain::Reservation> reservation;
std::optional<ringmain::Borrowed> borrowed;
std::optional<ringmain::FramePublisher> frames_out;
std::optional<ringmain::FrameSubscriber> frames_in;
std::optional<ringmain::FrameDraft> draft;
std::vector<ringmain::Frame> frames;

ringmain::Contract contract_of(const std::string& name) {
    for (uint32_t i = 1; const char* known = ringmain_contract_name(static_cast<ringmain_contract>(i)); ++i)
        if (name == known) return static_cast<ringmain::Contract>(i);
    return ringmain::Contract{};
}

std::vector<std::string> list(const std::string& words) {
    std::vector<std::string> all;
    std::istringstream in(words);
    for (std::string each; std::getline(in, each, ',');) all.push_back(each);
    return all;
}

std::optional<std::vector<std::string>> maybe(const Words& words, const std::string& name) {
    auto there = words.find(name);
    return there == words.end() ? std::nullopt : std::optional(list(there->second));
}

std::string hex(ringmain::Bytes bytes) {
    std::string out = "-";
    for (std::byte each : bytes) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(each));
        out += digits;
    }
    return out;
}

std::vector<std::byte> bytes(const std::string& hex) {
    std::vector<std::byte> out;
    for (size_t i = 1; i + 1 < hex.size(); i += 2)
        out.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return out;
}

template <class Received>
std::string shown(const Received& m) {
    std::ostringstream out;
    out << "message " << m.seq() << " " << m.lost() << " " << m.redelivered() << " -" << m.sender() << " -"
        << m.kind() << " " << hex(m.bytes());
    return out.str();
}

std::string refused(const ringmain::Error& error) {
    if (error.code() == ringmain::Code::empty) return "empty";
    std::string text = error.what();
    for (char& each : text)
        if (each == '\n') each = '\t';
    return "error " + std::to_string(static_cast<int>(error.code())) + " " + text;
}

template <class T, class Show>
std::string answer(ringmain::Result<T> result, Show show) {
    return result ? show(*result) : refused(result.error());
}

std::string numbered(uint64_t number) { return "ok " + std::to_string(number); }

std::string joined(std::span<const uint64_t> numbers) {
    std::string out;
    for (uint64_t each : numbers) out += (out.empty() ? "" : ",") + std::to_string(each);
    return out;
}

std::string shown(const ringmain::Plane& plane, const std::string& name) {
    return " " + name + ":" + std::string(plane.dtype()) + ":" + joined(plane.shape()) + ":" +
           joined(plane.strides()) + ":" + std::to_string(static_cast<int>(plane.data()[0]));
}

ringmain::FrameLayout layout_of(Words& w) {
    if (w.contains("bytes")) return ringmain::FrameLayout::of_bytes(std::stoull(w["bytes"]));
    if (w.contains("dtype")) return ringmain::FrameLayout::of_array({2, 3}, w["dtype"]);
    return ringmain::FrameLayout::of_image(w["format"], static_cast<uint32_t>(std::stoul(w["width"])),
                                           static_cast<uint32_t>(std::stoul(w["height"])),
                                           w.contains("stride") ? std::stoull(w["stride"]) : 0);
}

std::string obey_frames(const std::string& command, Words& w, std::chrono::milliseconds timeout) {
    if (command == "frames-publisher") {
        frames_out.reset();
        ringmain::FramePublisherOptions options{.sender = w["sender"], .name = w["name"]};
        options.drops = w.contains("drops");
        options.takeover = w.contains("takeover");
        if (w.contains("buffers")) options.buffers = static_cast<uint32_t>(std::stoul(w["buffers"]));
        frames_out.emplace(w["topic"], layout_of(w), options);
        return "ok";
    }
    if (command == "frames-subscriber") {
        frames_in.reset();
        frames_in.emplace(w["topic"], ringmain::FrameSubscriberOptions{.conflate = w.contains("conflate"),
                                                                       .name = w["name"]});
        return "ok";
    }
    if (command == "frames-begin")
        return answer(frames_out->frame(timeout), [&](ringmain::FrameDraft& made) {
            draft.emplace(std::move(made));
            std::fill(draft->bytes().begin(), draft->bytes().end(), static_cast<std::byte>(std::stoi(w["fill"])));
            return numbered(draft->size());
        });
    if (command == "frames-commit") {
        std::vector<std::byte> meta = bytes(w["meta"]);
        if (w.contains("id")) draft->id = std::stoull(w["id"]);
        draft->valid = !w.contains("invalid");
        draft->meta = meta;
        std::string said = answer(draft->commit(w.contains("used") ? std::stoull(w["used"]) : draft->size()), numbered);
        draft.reset();
        return said;
    }
    if (command == "frames-discard") return draft.reset(), "ok";
    if (command == "frames-dropped") return numbered(frames_out->dropped());
    if (command == "frames-receive")
        return answer(frames_in->receive(timeout), [](ringmain::Frame& frame) {
            std::ostringstream out;
            out << "frame " << frame.seq() << " " << frame.id() << " " << frame.lost() << " " << frame.valid() << " "
                << frame.size() << " -" << frame.sender() << " " << hex(frame.meta()) << " " << frame.layout().format
                << shown(frame.array(), "array");
            for (uint32_t i = 0; i < frame.layout().plane_count; ++i)
                out << shown(*frame.plane(frame.layout().planes[i].name), frame.layout().planes[i].name);
            frames.push_back(std::move(frame));
            return out.str();
        });
    if (command == "frames-release") return frames.clear(), "ok";
    if (command == "frames-byte")  // of the frame that was received first, and is still held
        return numbered(static_cast<uint64_t>(frames.front().data()[std::stoul(w["at"])]));
    if (command == "frames-lost") return numbered(frames_in->lost());
    if (command == "frames-close-subscriber") return frames_in.reset(), "ok";
    if (command == "frames-close-publisher") return frames_out.reset(), "ok";
    return "error -1 there is no command " + command;
}

std::string obey(const std::string& command, Words w) {
    if (command == "publisher" || command == "imu-publisher") {
        ringmain::PublisherOptions options;
        if (w.contains("contract")) options.contract = contract_of(w["contract"]);
        if (w.contains("capacity")) options.capacity = std::stoull(w["capacity"]);
        if (w.contains("mode")) options.mode = static_cast<uint32_t>(std::stoul(w["mode"], nullptr, 8));
        if (w.contains("min_readers"))
            options.min_readers = static_cast<uint32_t>(std::stoul(w["min_readers"]));
        if (w.contains("keep")) options.keep_last_per_kind = static_cast<uint32_t>(std::stoul(w["keep"]));
        options.sender = w["sender"];
        options.takeover = w.contains("takeover");
        options.persist = w.contains("persist");
        publisher.reset();
        imu_out.reset();
        if (command == "publisher")
            publisher.emplace(w["topic"], options);
        else
            imu_out.emplace(w["topic"], options);
        return "ok";
    }
    if (command == "subscriber" || command == "imu-subscriber") {
        ringmain::SubscriberOptions options;
        if (w["start"] == "oldest") options.start = ringmain::Start::oldest;
        if (w["start"] == "newest") options.start = ringmain::Start::newest;
        if (w["observe"] == "always") options.observe = ringmain::Observe::always;
        options.conflate = w.contains("conflate");
        options.name = w["name"];
        options.ignore_senders = list(w["ignore_senders"]);
        options.ignore_kinds = list(w["ignore_kinds"]);
        options.only_senders = maybe(w, "only_senders");
        options.only_kinds = maybe(w, "only_kinds");
        subscriber.reset();
        imu_in.reset();
        if (command == "subscriber")
            subscriber.emplace(w["topic"], options);
        else
            imu_in.emplace(w["topic"], options);
        return "ok";
    }
    std::chrono::milliseconds timeout(w.contains("timeout") ? std::stol(w["timeout"]) : 0);
    if (command.starts_with("frames-")) return obey_frames(command, w, timeout);
    if (command == "send") return answer(publisher->send(bytes(w["data"]), w["kind"], timeout), numbered);
    if (command == "stopped-send" || command == "stopped-receive") {
        std::stop_source stop;
        std::thread later([&] {
            std::this_thread::sleep_for(timeout);
            stop.request_stop();
        });
        std::string said =
            command == "stopped-send"
                ? answer(publisher->send(bytes(w["data"]), {}, ringmain::forever, stop.get_token()), numbered)
                : answer(subscriber->receive(ringmain::forever, stop.get_token()),
                         [](const ringmain::Message& m) { return shown(m); });
        later.join();
        return said;
    }
    if (command == "wait-for-readers")
        return answer(publisher->wait_for_readers(static_cast<uint32_t>(std::stoul(w["count"])), timeout),
                      numbered);
    if (command == "reserve")
        return answer(publisher->try_reserve(std::stoul(w["size"]), w["kind"]),
                      [](ringmain::Reservation& made) {
                          reservation.emplace(std::move(made));
                          return numbered(reservation->size());
                      });
    if (command == "commit") {
        std::vector<std::byte> data = bytes(w["data"]);
        std::copy(data.begin(), data.end(), reservation->data());
        std::string said = answer(reservation->commit(data.size()), numbered);
        reservation.reset();
        return said;
    }
    if (command == "discard") return reservation.reset(), "ok";
    if (command == "receive")
        return answer(subscriber->receive(timeout), [](const ringmain::Message& m) { return shown(m); });
    if (command == "borrow")
        return answer(subscriber->borrow(timeout), [](ringmain::Borrowed& m) {
            borrowed.emplace(std::move(m));
            return shown(*borrowed);
        });
    if (command == "return" || command == "fail")
        return numbered(static_cast<uint64_t>(command == "fail" ? borrowed->fail() : borrowed->release()));
    if (command == "reject") return subscriber->reject(), "ok";
    if (command == "forked") {  // what it inherited is its parent's
        pid_t child = fork();
        if (child == 0) {
            bool closed = publisher->try_send({}).code() == ringmain::Code::closed &&
                          subscriber->try_receive().code() == ringmain::Code::closed;
            publisher.reset();
            subscriber.reset();
            _exit(closed ? 0 : 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        return numbered(static_cast<uint64_t>(status));
    }
    if (command == "wait" || command == "stopped-wait") {  // for the subscriber, the structs and the frames that there are
        std::vector<ringmain::AnySubscriber> all;
        if (subscriber) all.push_back(&*subscriber);
        if (imu_in) all.push_back(&*imu_in);
        if (frames_in) all.push_back(&*frames_in);
        std::stop_source stop;
        std::jthread later([&] {
            if (command == "stopped-wait") {
                std::this_thread::sleep_for(timeout);
                stop.request_stop();
            }
        });
        auto show = [](const std::vector<size_t>& ready) {
            std::string said = "ready";
            for (size_t each : ready) said += " " + std::to_string(each);
            return said;
        };
        return command == "wait" ? answer(ringmain::wait(all, timeout), show)
                                 : answer(ringmain::wait(all, ringmain::forever, stop.get_token()), show);
    }
    if (command == "wait-two")  // as it is written
        return answer(ringmain::wait({&*subscriber, &*frames_in}, timeout),
                      [](const std::vector<size_t>& ready) { return numbered(ready.size()); });
    if (command == "lost") return numbered(subscriber->lost());
    if (command == "readers") return numbered(publisher->wait_for_readers(0).value());
    if (command == "all-read") return numbered(publisher->all_read());
    if (command == "epoch")
        return numbered(publisher ? publisher->endpoint().epoch : subscriber->endpoint()->epoch);
    if (command == "imu-send") {
        robot::Imu imu{std::stod(w["t"]), {1, 2, 3},       7, true, robot::Mode::driving,
                       "front",           {{1, 2}, {3, 4}}};
        return answer(imu_out->try_send(imu), numbered);
    }
    if (command == "imu-receive")
        return answer(imu_in->try_borrow(), [](const ringmain::BorrowedOf<robot::Imu>& m) {
            std::ostringstream out;
            out << "imu " << m->t << " " << m->gyro[2] << " " << m->id << " " << m->ok << " "
                << static_cast<int>(m->mode) << " " << m->name << " " << m->path[1].y;
            return out.str();
        });
    if (command == "info") {
        ringmain::TopicInfo info = ringmain::info(w["topic"]);
        std::ostringstream out;
        out << "info " << ringmain_contract_name(static_cast<ringmain_contract>(info.contract)) << " "
            << info.capacity << " " << info.next_sequence;
        for (const auto& each : info.participants)
            out << " " << static_cast<int>(each.role) << ":" << each.name << ":" << each.lag_messages;
        return out.str();
    }
    if (command == "topics") {
        std::string names = "topics";
        for (const ringmain::TopicInfo& each : ringmain::topics()) names += " " + each.name;
        return names;
    }
    if (command == "unlink") return ringmain::unlink(w["topic"], w.contains("force")), "ok";
    if (command == "close") {
        borrowed.reset();
        reservation.reset();
        draft.reset();
        frames.clear();
        frames_out.reset();
        frames_in.reset();
        publisher.reset();
        imu_out.reset();
        subscriber.reset();
        imu_in.reset();
        return "ok";
    }
    return "error -1 there is no command " + command;
}

}  // namespace

int main() {
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream in(line);
        std::string command;
        in >> command;
        Words words;
        for (std::string word; in >> word;)
            words[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
        std::string said;
        try {
            said = obey(command, words);
        } catch (const ringmain::Error& error) {
            said = refused(error);
        }
        std::cout << said << std::endl;
    }
}
