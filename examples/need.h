#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "fairway/fairway.h"

// What the programs of the tutorial do about an error: print it and end. 04_a_peer_dies.cc does more.
inline void need(const fairway::Status& status) {
  if (status) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::quick_exit(1);
}

template <class T>
T need(fairway::Result<T> result) {
  need(result.status());
  return *std::move(result);
}
