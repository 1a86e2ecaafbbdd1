#include <gtest/gtest.h>

#include "topology/discover.h"
#include "topology/verbs_abi.h"

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
#define HAVE_VERBS_HEADERS 1
#endif

namespace fairway::topology {
namespace {

TEST(Verbs, TheDeclaredAbiIsTheHeaders) {
#ifdef HAVE_VERBS_HEADERS
  using verbs::Context;
  using verbs::DeviceAttributes;
  using verbs::PortAttributes;
  static_assert(sizeof(DeviceAttributes) == sizeof(ibv_device_attr));
  static_assert(offsetof(DeviceAttributes, max_qp) == offsetof(ibv_device_attr, max_qp));
  static_assert(offsetof(DeviceAttributes, atomic_cap) == offsetof(ibv_device_attr, atomic_cap));
  static_assert(offsetof(DeviceAttributes, max_srq_sge) == offsetof(ibv_device_attr, max_srq_sge));
  static_assert(offsetof(DeviceAttributes, phys_port_cnt) == offsetof(ibv_device_attr, phys_port_cnt));
  static_assert(offsetof(PortAttributes, max_msg_sz) == offsetof(ibv_port_attr, max_msg_sz));
  static_assert(offsetof(PortAttributes, link_layer) == offsetof(ibv_port_attr, link_layer));
  static_assert(sizeof(PortAttributes) > sizeof(ibv_port_attr));
  static_assert(offsetof(Context, num_comp_vectors) == offsetof(ibv_context, num_comp_vectors));
#else
  GTEST_SKIP() << "no infiniband/verbs.h (Debian: libibverbs-dev)";
#endif
}

// Every device of this machine has its limits, or a note says why not.
TEST(Verbs, LimitsAreReadOrTheReasonIsSaid) {
  DiscoverOptions options;
  options.use_gpu_driver = false;
  const auto machine = discover(options);
  ASSERT_TRUE(machine) << machine.status().to_string();
  if (machine->rdma.empty()) GTEST_SKIP() << "no RDMA device here";
  for (const auto& device : machine->rdma) {
    bool said = false;
    for (const auto& note : machine->notes) said = said || note.subject == device.name || note.subject == "libibverbs";
    if (device.attributes.empty()) {
      EXPECT_TRUE(said) << device.name;
      continue;
    }
    const auto limit = [&device](const char* name) {
      for (const auto& attribute : device.attributes) {
        if (attribute.name == name) return *attribute.value;
      }
      return std::string();
    };
    EXPECT_GT(std::stoull(limit("max_qp")), 0U);
    EXPECT_GT(std::stoull(limit("max_cqe")), 0U);
    for (const auto& port : device.ports) EXPECT_EQ(port.max_mtu.source, Source::verbs);
  }
}

}  // namespace
}  // namespace fairway::topology
