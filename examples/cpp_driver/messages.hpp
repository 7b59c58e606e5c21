// What the drivers send. Python finds the fields in the topics' schemas.
#pragma once

#include <ringmain/ringmain.hpp>

struct Imu {
    double t;  // seconds since the driver began
    float gyro[3];
    float acceleration[3];
};
RINGMAIN_STRUCT(Imu, t, gyro, acceleration)

constexpr int kWidth = 64, kHeight = 48;
