// A camera: thirty images, written where their readers see them, without a copy.
#include <chrono>
#include <cstdio>
#include <thread>

#include "messages.hpp"

int main() try {
    using namespace std::chrono_literals;
    ringmain::Publisher camera(
        "robot/camera", {.contract = ringmain::Contract::bus, .capacity = 1 << 20, .sender = "camera"});
    for (int image = 0; image < 30; ++image) {
        auto draft = camera.reserve(kWidth * kHeight, "gray", 100ms);
        if (!draft) {  // who was in the way is said, and this image is dropped
            std::fprintf(stderr, "camera: image %d: %s\n", image, draft.error().what());
            continue;
        }
        for (int y = 0; y < kHeight; ++y)
            for (int x = 0; x < kWidth; ++x)
                draft->data()[y * kWidth + x] = static_cast<std::byte>(x + y + 8 * image);
        draft->commit().value();
        std::this_thread::sleep_for(33ms);
    }
} catch (const ringmain::Error& error) {
    std::fprintf(stderr, "camera: %s\n", error.what());
    return 1;
}
