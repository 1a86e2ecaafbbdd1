#pragma once

// Everything a program needs to move bytes with Fairway.
#include "fairway/engine.h"
#include "fairway/loopback.h"
