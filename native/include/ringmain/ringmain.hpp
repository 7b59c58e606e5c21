// ringmain for C++20: topics in shared memory, the same that Python's `ringmain` opens. See docs/guide/cpp.md.
//
//     ringmain::Publisher imu("imu", {.contract = ringmain::Contract::broadcast, .capacity = 1 << 20});
//     imu.send(bytes).value();
//
//     ringmain::Subscriber commands("commands");
//     if (auto message = commands.receive(100ms)) use(message->data(), message->seq(), message->lost());
//
// Header only, on the library's C functions (ringmain.h): so a program may be compiled with another compiler or standard
// library than the library was.
#pragma once

#include <ringmain/frames.hpp>
#include <ringmain/inspect.hpp>
#include <ringmain/publisher.hpp>
#include <ringmain/structs.hpp>
#include <ringmain/subscriber.hpp>
#include <ringmain/wait.hpp>
