#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/side.h"

// One suite of claims for every transport. A new one joins with one file that makes its worlds and one line in
// worlds.cc; a claim is skipped only by what the transport says of itself.
namespace fairway::conformance {

// Two sides of one transport and what can be done to them.
class World {
 public:
  virtual ~World() = default;
  Side& a() { return *a_; }
  Side& b() { return *b_; }
  virtual std::size_t links() const = 0;                    // that a connected pair has
  virtual bool break_link(std::uint64_t name) = 0;          // false: this world cannot
  virtual bool overlapping_memory() const { return true; }  // both sides' memory may be the same
  virtual bool announces() const { return true; }           // what comes wakes a sleeper; else it looks by a timer

  // Connects the two; false when not all links came up.
  bool connect() {
    a().carry_to(b());
    b().carry_to(a());
    b().connect(Role::acceptor);  // first: bytes of a peer that this side does not know are not kept
    a().connect(Role::initiator);
    return a().wait_links(links()).size() == links() && b().wait_links(links()).size() == links();
  }

 protected:
  std::unique_ptr<Side> a_, b_;
};

struct Kind {
  std::string name;   // in the test's name
  unsigned runs = 1;  // with different seeds
  std::function<std::unique_ptr<World>(std::uint64_t seed)> make;
  std::function<std::string()> why_not = {};                           // what is missing here; empty: nothing
  std::function<std::string(const std::string& claim)> left_out = {};  // why this run does without that claim
};
inline void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}
std::vector<Kind> all_kinds();
std::vector<Kind> loopback_kinds();
std::vector<Kind> shm_kinds();
std::vector<Kind> tcp_kinds();
std::vector<Kind> cuda_kinds();
std::vector<Kind> fabric_kinds();
std::vector<Kind> nic_kinds();
std::vector<Kind> mailbox_kinds();

// The base of all claims: Claim::each runs a body in every world of the kind and names the seed that failed.
class Claim : public testing::TestWithParam<Kind> {
 protected:
  template <class Body>
  void each(Body body) {
    const std::string missing = GetParam().why_not ? GetParam().why_not() : "";
    if (!missing.empty() && std::getenv("FAIRWAY_VM") != nullptr) FAIL() << missing;
    if (!missing.empty()) GTEST_SKIP() << missing;
    if (GetParam().left_out) {
      const auto* test = testing::UnitTest::GetInstance()->current_test_info();
      const std::string name = test->name();  // of the claim, then of the kind
      const std::string why = GetParam().left_out(name.substr(0, name.find('/')));
      if (!why.empty()) GTEST_SKIP() << why;
    }
    for (std::uint64_t seed = 1; seed <= GetParam().runs; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      const std::unique_ptr<World> world = GetParam().make(seed);
      body(*world, seed);
      if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure()) return;
    }
  }
  // With the two sides connected.
  template <class Body>
  void connected(Body body) {
    each([&](World& world, std::uint64_t seed) {
      ASSERT_TRUE(world.connect());
      body(world, seed);
    });
  }
};

inline bool native(const transport::Capabilities& can, Op op) {
  return (can.operations & static_cast<std::uint8_t>(op)) != 0;
}
inline bool native(const transport::Capabilities& can, Shape shape) {
  return (can.shapes & static_cast<std::uint8_t>(shape)) != 0;
}

// A contiguous slice between two remembered memories.
inline Slice slice(Op op, const UpLink& link, transport::SliceToken token, const Memory& local, std::uint64_t at,
                   std::uint64_t remote, std::uint64_t remote_offset, std::uint64_t length) {
  Slice made;
  made.op = op;
  made.token = token;
  made.link = link.id;
  made.local = local.buffer->data() + at;
  made.local_handle = local.handle;
  made.remote_handle = remote;
  made.remote_offset = remote_offset;
  made.length = length;
  return made;
}

inline std::string kind_name(const testing::TestParamInfo<Kind>& kind) {
  return kind.param.name;
}

#define FAIRWAY_CLAIMS(claim)    \
  class claim : public Claim {}; \
  INSTANTIATE_TEST_SUITE_P(Conformance, claim, testing::ValuesIn(all_kinds()), kind_name)

}  // namespace fairway::conformance
