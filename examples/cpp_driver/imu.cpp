// An IMU: a struct a millisecond, for a second.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "messages.hpp"

int main() try {
    using namespace std::chrono_literals;
    ringmain::PublisherOf<Imu> imu("robot/imu", {.capacity = 1 << 20, .sender = "imu"});
    auto begin = std::chrono::steady_clock::now();
    for (int tick = 0; tick < 1000; ++tick) {
        double t = tick * 1e-3;
        Imu now{t, {0, 0, static_cast<float>(std::cos(t))}, {0, 0, 9.81f}};
        imu.send(now).value();
        std::this_thread::sleep_until(begin + (tick + 1) * 1ms);
    }
} catch (const ringmain::Error& error) {
    std::fprintf(stderr, "imu: %s\n", error.what());
    return 1;
}
