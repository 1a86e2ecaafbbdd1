// The shortest program outside this tree: found by find_package(fairway) or by pkg-config, see CMakeLists.txt beside it.
#include <cstdio>

#include "fairway/status.h"

int main() {
  const fairway::Status status(fairway::ErrorCode::unreachable, "nothing listens at 10.0.0.7:4000");
  std::puts(status.to_string().c_str());
  return status.code() == fairway::ErrorCode::unreachable ? 0 : 1;
}
