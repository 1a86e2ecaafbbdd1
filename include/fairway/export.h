#pragma once

#if __cplusplus < 202002L
#error "Fairway's headers need C++20: compile with -std=c++20 or later"
#endif

// Marks what libfairway.so exports; everything else in it is hidden.
#define FAIRWAY_API [[gnu::visibility("default")]]
