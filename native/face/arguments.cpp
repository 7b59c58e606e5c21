#include "face/arguments.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/text.hpp"
#include "face/failing.hpp"

namespace ringmain::face {

namespace {

constexpr size_t kMaxTopicBytes = 200;

[[noreturn]] void refuse(std::string text) { throw Refusal{RINGMAIN_INVALID_ARGUMENT, std::move(text)}; }

bool valid_part(std::string_view part) {
    constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    return !part.empty() && part != "." && part != ".." &&
           part.find_first_not_of(kLetters) == std::string_view::npos;
}

bool valid_topic(std::string_view name) {
    if (name.size() > kMaxTopicBytes) return false;
    for (;;) {
        size_t slash = name.find('/');
        if (!valid_part(name.substr(0, slash))) return false;
        if (slash == std::string_view::npos) return true;
        name.remove_prefix(slash + 1);
    }
}

}  // namespace

std::string checked_topic(const char* topic) {
    std::string_view name = text(topic);
    if (valid_topic(name)) return std::string(name);
    std::string shown = printable(name.size() <= 60 ? name : name.substr(0, 57));
    refuse("'" + shown + (name.size() <= 60 ? "" : "...") +
           "' is not a topic's name: a topic's name is parts of letters, digits, '.', '_' and '-', separated "
           "by '/', no part empty, '.' or '..', 200 characters at most");
}

std::string checked_envelope(const char* what, std::string_view name) {
    if (name.size() <= kMaxEnvelopeNameBytes && is_utf8(name) && name.find('\0') == std::string_view::npos)
        return std::string(name);
    refuse(std::string(what) + " is at most 255 bytes of UTF-8 without NUL, not '" +
           printable(name.substr(0, 40)) + "'");
}

void check_kind(std::string_view kind) {
    if (kind.size() > kMaxEnvelopeNameBytes)
        refuse("kind is at most " + std::to_string(kMaxEnvelopeNameBytes) + " bytes of UTF-8, this one has " +
               std::to_string(kind.size()));
    if (!may_be_kind(kind)) refuse("kind is UTF-8, and so does not begin with the byte 0xff");
}

void check_min_readers(uint32_t count, uint32_t max_participants) {
    uint32_t slots = max_participants ? max_participants : kDefaultSlotCount;
    if (count < slots) return;
    refuse("min_readers is from 0 to " + std::to_string(slots - 1) + ", since a topic has " +
           std::to_string(slots) + " slots, not " + std::to_string(count) +
           "; max_participants= makes it more");
}

WriterRequest checked_request(const ringmain_publisher_options& options) {
    WriterRequest request;
    if (options.contract != RINGMAIN_AS_IT_IS) {
        if (!ringmain_contract_name(options.contract))
            refuse("contract is one of RINGMAIN_BROADCAST to RINGMAIN_WORK, not " +
                   std::to_string(options.contract));
        request.contract = static_cast<Contract>(options.contract);
    }
    if (options.capacity > kMaxCapacityBytes)
        refuse("capacity must be between 1 byte and 1 TiB, not " + std::to_string(options.capacity));
    if (options.capacity) request.capacity_bytes = options.capacity;
    if (options.mode) {
        char shown[16];
        std::snprintf(shown, sizeof shown, "0o%o", options.mode);
        if (options.mode & ~0777u || (options.mode & 0600) != 0600)
            refuse(std::string("mode is permissions that include 0o600, such as 0o660, not ") + shown);
        request.mode = options.mode;
    }
    if (options.max_participants) {
        if (options.max_participants < 2 || options.max_participants > kMaxSlotCount)
            refuse("max_participants is from 2 to " + std::to_string(kMaxSlotCount) + ", not " +
                   std::to_string(options.max_participants));
        request.slot_count = options.max_participants;
    }
    check_min_readers(options.min_readers, options.max_participants);
    if (options.keep_last_per_kind) {
        if (options.keep_last_per_kind > kMaxKeptKinds)
            refuse("keep_last_per_kind is True, or from 1 to " + std::to_string(kMaxKeptKinds) +
                   " kinds, not " + std::to_string(options.keep_last_per_kind));
        if (request.contract && traits(*request.contract).keeps_unread)
            refuse(std::string("keep_last_per_kind is not for a ") + traits(*request.contract).name +
                   " topic: its readers get every message, and begin where the last one stopped. Use "
                   "broadcast, bus or reliable");
        request.kept_kinds = options.keep_last_per_kind;
    }
    request.persist = options.persist;
    request.takeover = options.takeover;
    request.name = participant_name(text(options.name), text(options.sender));
    return request;
}

std::string runtime_directory(const char* given) {
    if (!text(given).empty()) return given;
    const char* variable = std::getenv("RINGMAIN_DIR");
    if (!text(variable).empty()) return variable;
    return "/dev/shm/ringmain-" + std::to_string(geteuid());
}

std::string participant_name(std::string_view name, std::string_view sender) {
    std::string_view chosen = !name.empty()     ? name
                              : !sender.empty() ? sender
                                                : std::string_view(program_invocation_short_name);
    while (chosen.size() > kMaxParticipantNameBytes || !is_utf8(chosen)) chosen.remove_suffix(1);
    return std::string(chosen);
}

}  // namespace ringmain::face

extern "C" {

RINGMAIN_API const char* ringmain_contract_name(ringmain_contract contract) {
    uint32_t row = static_cast<uint32_t>(contract) - 1;
    return row < std::size(ringmain::kContracts) ? ringmain::kContracts[row].name : nullptr;
}
}
