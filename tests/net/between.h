#pragma once

#include <memory>
#include <optional>

#include <gtest/gtest.h>

#include "net/meddlers.h"
#include "net/proxy.h"
#include "net/side.h"

namespace fairway::net {

// Two hosts with a proxy between them and no other way: the far side's address is held by both, the proxy answers at it
// in the near host. The far side's lanes are accepted at one of few ports, since its host has no others.
class Between : public testing::Test {
 protected:
  static constexpr std::chrono::milliseconds kBound{1000};  // the engines' peer timeout

  void SetUp() override;
  void TearDown() override;
  // Connects with `meddler` there from the first byte on.
  void meet_through(const std::shared_ptr<Meddler>& meddler);
  // Until a connect succeeds, whatever state the peer is in.
  Status meet_again();
  // What ended transfers may say: each names what happened, none is a wait that ran out.
  static bool is_typed(const Status& status);

  std::optional<Host> near_host_, far_host_;
  std::optional<Inside> inside_;
  std::optional<Far> far_;
  std::unique_ptr<Proxy> proxy_;
  std::optional<Near> near_;
};

}  // namespace fairway::net
