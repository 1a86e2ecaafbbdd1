#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace fairway::support {

// What an engine's transport factory gives that has one transport.
inline Result<std::vector<std::unique_ptr<transport::Transport>>> alone(
    Result<std::unique_ptr<transport::Transport>> opened) {
  if (!opened) return opened.status();
  std::vector<std::unique_ptr<transport::Transport>> all;
  all.push_back(std::move(*opened));
  return all;
}

}  // namespace fairway::support
