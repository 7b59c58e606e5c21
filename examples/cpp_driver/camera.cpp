// A camera: thirty images, written into buffers that their readers look at, without a copy.
#include <chrono>
#include <cstdio>
#include <thread>

#include "messages.hpp"

int main() try {
    using namespace std::chrono_literals;
    ringmain::FramePublisher camera("robot/camera", ringmain::FrameLayout::of_image("gray", kWidth, kHeight),
                                    {.buffers = 4, .sender = "camera"});
    for (int image = 0; image < 30; ++image) {
        auto frame = camera.frame(100ms);
        if (!frame) {  // who was in the way is said, and this image is dropped
            std::fprintf(stderr, "camera: image %d: %s\n", image, frame.error().what());
            continue;
        }
        for (int y = 0; y < kHeight; ++y)
            for (int x = 0; x < kWidth; ++x)
                frame->data()[y * kWidth + x] = static_cast<std::byte>(x + y + 8 * image);
        frame->commit().value();
        std::this_thread::sleep_for(33ms);
    }
} catch (const ringmain::Error& error) {
    std::fprintf(stderr, "camera: %s\n", error.what());
    return 1;
}
