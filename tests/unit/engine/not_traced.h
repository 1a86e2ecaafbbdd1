#pragma once

// Included first into each file of traced_code by Clang, which cannot leave out what stands in some folders: no
// function of the standard library says when it is entered.
#pragma clang attribute push(__attribute__((no_instrument_function)), apply_to = function)
#include <bits/stdc++.h>
#pragma clang attribute pop
