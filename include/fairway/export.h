#pragma once

// Marks what libfairway.so exports; everything else in it is hidden.
#define FAIRWAY_API [[gnu::visibility("default")]]
