#include <gtest/gtest.h>

#include "machines.h"
#include "predict/constants.h"
#include "predict/links.h"
#include "topology/load.h"

// Figures that were promised and cannot be.
namespace fairway::predict::test {
namespace {

using namespace topology;
constexpr auto kSource = Source::hand_written;

double expected(const Machine& machine, const Flow& flow) {
  const auto prediction = Model(machine).predict(flow);
  EXPECT_TRUE(prediction) << prediction.status().message();
  return prediction ? prediction->gbs.expected : 0;
}

Machine infiniband_of(const char* speed, double gbps) {
  Spec spec;
  spec.infiniband = true;
  spec.nic_gbps = gbps;
  auto machine = server(spec);
  for (auto& rdma : machine.rdma) {
    rdma.ports.front().link_layer.set("InfiniBand", kSource);
    rdma.ports.front().speed_name.set(speed, kSource);
  }
  return machine;
}

TEST(PredictField, LineCodingOfOldInfinibandIsTakenOff) {
  EXPECT_LE(expected(infiniband_of("QDR", 40), send(0, 0)), 4.0);
  EXPECT_GE(expected(infiniband_of("QDR", 40), send(0, 0)), 3.8);
  EXPECT_LE(expected(infiniband_of("DDR", 20), send(0, 0)), 2.0);
  EXPECT_LE(expected(infiniband_of("FDR", 56), send(0, 0)), 6.82);
  EXPECT_GE(expected(infiniband_of("EDR", 100), send(0, 0)), 12.2) << "the rate of EDR is the data's";
  // RoCE of 40 Gb/s is named QDR too.
  auto roce = infiniband_of("QDR", 40);
  for (auto& rdma : roce.rdma) rdma.ports.front().link_layer.value = "Ethernet";
  EXPECT_GE(expected(roce, send(0, 0)), 4.7);
}

TEST(PredictField, AGpuWithC2cReachesItsCpusNicsByIt) {
  Spec spec;
  spec.gts = 64;
  spec.nic_gbps = 800;
  spec.infiniband = true;
  auto machine = pair_of(PathKind::node, spec);
  Conditions how;
  how.qps = 8;
  const auto before = expected(machine, send(0, 0, how));
  if (machine.numa_nodes.empty()) machine.numa_nodes.emplace_back();
  DeviceLink link;
  link.kind = LinkKind::c2c;
  link.a = {NodeKind::gpu, 0};
  link.b = {NodeKind::numa_node, 0};
  link.count.set(1, kSource);
  link.gbs_per_link.set(450, kSource);
  machine.links.push_back(link);
  const auto after = expected(machine, send(0, 0, how));
  EXPECT_GT(after, 2 * before) << "not the crossing between host bridges";
  EXPECT_GT(after, 90) << "800 Gb/s";
}

TEST(PredictField, AMatrixAloneLeavesBothGenerationsOfEighteenLinks) {
  const std::string heading = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n";
  const std::string legend = "\nNIC Legend:\n\n  NIC0: mlx5_0\n";
  const auto gbs = [&](const std::string& rows, const Flow& flow) {
    auto machine = read_topo_matrix(heading + rows + legend, "t");
    EXPECT_TRUE(machine) << machine.status().message();
    const auto prediction = Model(std::move(machine).value()).predict(flow);
    EXPECT_TRUE(prediction) << prediction.status().message();
    return prediction ? prediction->gbs : Range{};
  };
  const auto any =
      gbs("GPU0\t X \tNV18\tPIX\t0-3\t0\t\tN/A\nGPU1\tNV18\t X \tPIX\t0-3\t0\t\tN/A\nNIC0\tPIX\tPIX\t X \n",
          gpu_to_gpu(0, 1));
  EXPECT_LT(any.low, 450) << "H100's";
  EXPECT_GT(any.high, 700) << "B200's";
  // Two GPUs beside one Grace are Blackwells. Their way to the other CPU's NIC crosses, though its node is not told.
  const std::string tray =
      "GPU0\t X \tNV18\tSYS\t0-71\t0,2-17\t\t2\nGPU1\tNV18\t X \tSYS\t0-71\t0,2-17\t\t10\nNIC0\tSYS\tSYS\t X \n";
  EXPECT_GT(gbs(tray, gpu_to_gpu(0, 1)).low, 700);
  EXPECT_LT(gbs(tray, send(0, 0)).low, 25);
}

TEST(PredictField, GpusWithoutPeerAccessStageInHostMemory) {
  Spec spec;
  spec.nvlinks = 0;
  spec.gts = 16;
  spec.gpu = "NVIDIA A100 80GB PCIe";
  const auto direct = expected(server(spec), gpu_to_gpu(0, 1));
  spec.gpu = "NVIDIA GeForce RTX 4090";
  const auto machine = server(spec);
  const auto prediction = Model(machine).predict(gpu_to_gpu(0, 1));
  ASSERT_TRUE(prediction);
  EXPECT_LT(prediction->gbs.expected, direct);
  EXPECT_LT(prediction->gbs.low, 13);
  bool said = false;
  for (const auto& note : prediction->notes) said = said || note.find("host memory") != std::string::npos;
  EXPECT_TRUE(said);
}

CpuKind kind_of(const char* vendor, std::uint32_t family, std::uint32_t model, const char* name) {
  Machine machine;
  Package package;
  package.vendor.set(vendor, kSource);
  package.family.set(family, kSource);
  package.model_number.set(model, kSource);
  package.model.set(name, kSource);
  machine.packages.push_back(package);
  return cpu_kind(machine);
}

TEST(PredictField, DesktopsAreNoServers) {
  EXPECT_EQ(kind_of("GenuineIntel", 6, 0x9e, "Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz"), CpuKind::unknown);
  EXPECT_EQ(kind_of("GenuineIntel", 6, 0x97, "12th Gen Intel(R) Core(TM) i9-12900K"), CpuKind::unknown);
  EXPECT_EQ(kind_of("GenuineIntel", 6, 0xb7, "Intel(R) Xeon(R) E-2488"), CpuKind::unknown);
  EXPECT_EQ(kind_of("AuthenticAMD", 0x1a, 0x44, "AMD Ryzen 9 9950X 16-Core Processor"), CpuKind::unknown);
  EXPECT_EQ(kind_of("AuthenticAMD", 0x19, 0x18, "AMD Ryzen Threadripper PRO 7995WX 96-Cores"), CpuKind::unknown);
}

TEST(PredictField, ServersAreKnownByTheirModels) {
  EXPECT_EQ(kind_of("GenuineIntel", 6, 0x8f, "Intel(R) Xeon(R) Platinum 8480C"), CpuKind::intel_sapphire);
  EXPECT_EQ(kind_of("GenuineIntel", 6, 0xcf, "INTEL(R) XEON(R) PLATINUM 8570"), CpuKind::intel_emerald);
  EXPECT_EQ(kind_of("GenuineIntel", 6, 0xad, "Intel(R) Xeon(R) 6960P"), CpuKind::intel_granite);
  EXPECT_EQ(kind_of("AuthenticAMD", 0x19, 0x11, "AMD EPYC 9654 96-Core Processor"), CpuKind::amd_zen34);
  EXPECT_EQ(kind_of("AuthenticAMD", 0x1a, 0x02, "AMD EPYC 9575F 64-Core Processor"), CpuKind::amd_zen5);
  EXPECT_EQ(kind_of("AuthenticAMD", 0x17, 0x31, "AMD EPYC 7742 64-Core Processor"), CpuKind::amd_zen12);
  Machine by_nccl;  // as NCCL writes families
  by_nccl.cpu_vendor.set("AuthenticAMD", kSource);
  by_nccl.cpu_family.set(143, kSource);
  by_nccl.cpu_model_number.set(49, kSource);
  EXPECT_EQ(cpu_kind(by_nccl), CpuKind::amd_zen12);
  by_nccl.cpu_family.value = 175;
  by_nccl.cpu_model_number.value = 17;
  EXPECT_EQ(cpu_kind(by_nccl), CpuKind::amd_zen34);
}

TEST(PredictField, MemoryWithoutCpusHasNoChannelsOfASocket) {
  Spec spec;
  auto machine = server(spec);
  const auto before = expected(machine, from_host(0, 0));
  NumaNode cxl;
  cxl.os_index = static_cast<std::uint32_t>(machine.numa_nodes.size());
  cxl.package = machine.numa_nodes[0].package;
  cxl.cpus.set({}, kSource);
  machine.numa_nodes.push_back(cxl);
  EXPECT_DOUBLE_EQ(expected(machine, from_host(0, 0)), before) << "it takes no share of the socket's";
}

}  // namespace
}  // namespace fairway::predict::test
