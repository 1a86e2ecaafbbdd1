#pragma once

#include <cstdint>
#include <string>

#include "predict/model.h"

// Machines made by hand, small enough to check a prediction with a pencil.
namespace fairway::predict::test {

struct Spec {
  std::uint32_t sockets = 2;
  std::uint32_t bridges_per_socket = 2;
  std::uint32_t gpus_per_bridge = 1;  // each with a NIC below one switch with it
  double gts = 32;                    // of every PCIe link, x16
  std::string gpu = "NVIDIA H100 80GB HBM3";
  std::string vendor = "GenuineIntel";
  std::uint32_t family = 6;
  std::uint32_t model = 0x8f;
  double nic_gbps = 400;   // of one port or leg
  std::uint32_t legs = 1;  // above 1: a bond
  bool infiniband = false;
  std::uint32_t nvlinks = 18;  // of each GPU into one NVSwitch; 0 for none
};

topology::Machine server(const Spec& spec);

// Classes alone, as a captured matrix has them: one GPU and one NIC apart by `path`.
topology::Machine pair_of(topology::PathKind path, const Spec& spec);

Flow send(std::uint32_t gpu, std::uint32_t nic, Conditions how = {});
Flow receive(std::uint32_t nic, std::uint32_t gpu, Conditions how = {});
Flow loop(std::uint32_t gpu, std::uint32_t nic, Conditions how = {});
Flow gpu_to_gpu(std::uint32_t a, std::uint32_t b, Conditions how = {});
Flow from_host(std::uint32_t numa, std::uint32_t gpu);

// The seed H20 server: 8 GPUs and 4 bonds of two 200 Gb/s legs, known by their captured matrix alone.
topology::Machine seed_h20();

}  // namespace fairway::predict::test
