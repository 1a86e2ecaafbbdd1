#pragma once

#include <array>
#include <cstdlib>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "net/host.h"

namespace fairway::nccl {

// Ranks on two hosts, which are network namespaces.
class NcclHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = net::Host::why_not(); !why.empty()) GTEST_SKIP() << why;
    hosts_ = std::make_unique<std::array<net::Host, 2>>();
    net::cable((*hosts_)[0], (*hosts_)[1], "one", 1);
    ::unsetenv("FAIRWAY_TRANSPORTS");
    ::setenv("FAIRWAY_GPU_MEMORY", "off", 1);
  }
  void TearDown() override {
    ::unsetenv("FAIRWAY_LISTEN");
    ::unsetenv("FAIRWAY_JOB_KEY");
  }
  std::unique_ptr<std::array<net::Host, 2>> hosts_;
};

}  // namespace fairway::nccl
