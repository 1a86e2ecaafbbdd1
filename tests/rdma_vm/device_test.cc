#include <thread>

#include <dlfcn.h>

#include "rdma_vm/ends.h"

// An RDMA device is removed while an engine uses it, and there is another one of its name later. rxe tells nobody, and
// the kernel waits until nobody has it open.
namespace fairway::rdma {
namespace {

class Device : public Ends {
 protected:
  void TearDown() override {  // the other cases have it again, whatever became of this one
    Ends::TearDown();
    if (in_guest())
      must(
          "for turn in $(seq 100); do [ ! -e /tmp/removal ] || grep -q removed /tmp/removal && break; sleep 0.1; done; "
          "[ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev v0");
  }
};

bool librdmacm_is_loaded() {
  void* const loaded = ::dlopen("librdmacm.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (loaded != nullptr) ::dlclose(loaded);
  return loaded != nullptr;
}

bool until(const std::string& command, const std::string& said) {
  const auto end = std::chrono::steady_clock::now() + net::kHang;
  while (said_by(command).find(said) == std::string::npos) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

TEST_F(Device, RemovedUnderTrafficIsLetGoAndUsedAgainOnceItIsBack) {
  if (over_iwarp()) GTEST_SKIP() << "its connections are rdma_cm's, which hold it until the engine ends";
  ASSERT_FALSE(librdmacm_is_loaded()) << "it keeps every device open until its process ends: this case comes first";
  ASSERT_NO_FATAL_FAILURE(meet(milliseconds(5000), {"verbs", "tcp"}));
  for (const char* turn : {"first", "second"}) {
    SCOPED_TRACE(turn);
    near().fill(7);
    std::vector<TransferId> ids;
    start(ids, 6);
    auto asked = std::chrono::steady_clock::now();
    must("(rdma link delete rxe0 && echo removed) >/tmp/removal 2>&1 &");
    ASSERT_TRUE(until("cat /tmp/removal", "removed")) << "an engine that has it open holds it for ever";
    tell("until the device was let go", since(asked));
    (void)all_end_well(ids, 7);
    works();
    EXPECT_EQ(near().links_text().find("verbs"), std::string::npos) << near().links_text();
    const auto region = near().engine->allocate(1 << 20, Access::all);
    EXPECT_TRUE(region) << region.status().to_string();

    must("rm /tmp/removal; rdma link add rxe0 type rxe netdev v0");
    asked = std::chrono::steady_clock::now();
    ASSERT_TRUE(until_up(true)) << near().links_text();
    tell("until its links were back", since(asked));
    near().fill(8);
    ids.clear();
    start(ids, 6);
    (void)all_end_well(ids, 8);
    works();
  }
  near_.reset();
  EngineOptions options = on("rxe0");
  options.transports = {"verbs", "tcp"};
  near_.emplace(options);
  ASSERT_TRUE(near().opened) << near().opened.to_string();
  const Status met = near().meet(far().address);
  ASSERT_TRUE(met) << met.to_string();
  ASSERT_TRUE(until_up(true)) << "who opens later has it too";
  works();
}

}  // namespace
}  // namespace fairway::rdma
