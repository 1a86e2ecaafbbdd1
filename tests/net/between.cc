#include "net/between.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace fairway::net {
namespace {

const Proxy::Place kPlace{"10.77.9.2", 5000, 40'000, 8};

}  // namespace

void Between::SetUp() {
  if (const std::string why = Host::why_not(); !why.empty()) GTEST_SKIP() << why;
  near_host_.emplace();
  far_host_.emplace();
  near_host_->must("ip address add 10.77.9.1/32 dev lo");
  for (const Host* host : {&*near_host_, &*far_host_}) host->must("ip address add 10.77.9.2/32 dev lo");
  far_host_->set_sysctl("ipv4/ip_local_port_range",
                        fmt::format("{} {}", kPlace.first_lane, kPlace.first_lane + kPlace.lanes - 1));
  inside_.emplace(*near_host_);
  far_.emplace(*far_host_, options_of("far", fmt::format("{}:{}", kPlace.address, kPlace.control), kBound));
  ASSERT_EQ(far_->failure, "");
  proxy_ = std::make_unique<Proxy>(*near_host_, *far_host_, kPlace);
  near_.emplace(options_of("near", "10.77.9.1:0", kBound));
  ASSERT_TRUE(near_->opened) << near_->opened.to_string();
}

void Between::TearDown() {
  near_.reset();
  proxy_.reset();
  far_.reset();
  inside_.reset();
}

void Between::meet_through(const std::shared_ptr<Meddler>& meddler) {
  proxy_->set(meddler);
  const Status met = near_->meet(far_->address);
  ASSERT_TRUE(met) << met.to_string();
  while (near_->links().size() < 2 && near_->next(PeerEvent::Kind::link_up)) continue;
  ASSERT_EQ(near_->links().size(), 2U) << near_->links_text();
}

Status Between::meet_again() {
  Status met;
  const auto until = std::chrono::steady_clock::now() + kHang;
  do {
    met = near_->meet(far_->address, std::chrono::seconds(2));
  } while (!met && std::chrono::steady_clock::now() < until);
  return met;
}

bool Between::is_typed(const Status& status) {
  constexpr std::array kAllowed = {ErrorCode::ok,
                                   ErrorCode::not_found,
                                   ErrorCode::invalid_argument,
                                   ErrorCode::access_denied,
                                   ErrorCode::out_of_range,
                                   ErrorCode::peer_dead,
                                   ErrorCode::stale_incarnation,
                                   ErrorCode::link_failed,
                                   ErrorCode::deadline_exceeded,
                                   ErrorCode::revoked,
                                   ErrorCode::protocol_error,
                                   ErrorCode::checksum_mismatch,
                                   ErrorCode::closed};
  return std::find(kAllowed.begin(), kAllowed.end(), status.code()) != kAllowed.end();
}

}  // namespace fairway::net
