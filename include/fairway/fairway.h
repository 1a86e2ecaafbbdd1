#pragma once

// Everything a program needs to move bytes with Fairway.
//
// Threads: any thread may make any call of an engine, and call any function that is no member of a class, such as
// detect_ranks(); one thread at a time uses a Communicator, but for abort(). Values (Status, Result, structs) are like
// a standard container: several threads may read one, or one thread changes it.
#include "fairway/engine.h"
#include "fairway/loopback.h"
