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

// Of a program that takes no more than `most` arguments, none of them an option: else it prints its usage and ends.
inline void arguments(int argc, char** argv, int most, const char* usage) {
  bool good = argc <= most + 1;
  for (int i = 1; i < argc; ++i) good = good && argv[i][0] != '-' && argv[i][0] != '\0';
  if (good) return;
  std::fprintf(stderr, "usage: %s%s%s\n", argv[0], *usage == '\0' ? "" : " ", usage);
  std::quick_exit(2);
}

template <class T>
T need(fairway::Result<T> result) {
  need(result.status());
  return *std::move(result);
}
