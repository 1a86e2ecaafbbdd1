#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "topology/machine.h"

// The rates of each generation of links and devices, by specification; each row names its source. Figures are nominal
// and per direction. What software reaches is in src/predict.
namespace fairway::topology {

enum class LinkFamily : std::uint8_t { pcie, nvlink, c2c, xgmi, upi, socket_xgmi, infiniband, ethernet };
std::string_view to_string(LinkFamily family);

struct LinkGeneration {
  LinkFamily family;
  std::string_view name;    // "NVLink 4"
  std::string_view device;  // whose link count this is: "H100 SXM, H200"
  double lane_gbps;         // Gb/s per lane and direction, after line coding
  std::uint32_t lanes;      // per link and direction; 0: the vendor does not say
  double link_gbs;          // GB/s per link and direction
  std::uint32_t links;      // per device; 1 for ports and slots
  double vendor_total_gbs;  // the vendor's figure, both directions of all links; 0: the vendor gives one direction
  std::string_view source;
  std::string_view trap;  // a common mistake; may be empty
};

// A GPU model, found by a part of its name.
struct GpuGeneration {
  std::string_view name;  // "H200": matched as a whole word of the model's name
  double pcie_gts;        // per lane, of its x16 link
  std::uint32_t nvlink;   // generation; 0 for none
  std::uint32_t nvlinks;  // how many
  std::string_view nics;  // the NICs that usually go with it
  double nic_gbps;        // Gb/s per port of those; 0: none is usual
  std::string_view source;
  double c2c_gbs = 0;  // NVLink-C2C to its CPU, GB/s per direction; 0: none
};

// A NIC family, found by a part of its name or of its RDMA device's type.
struct NicGeneration {
  std::string_view name;      // "ConnectX-7"
  std::string_view hca_type;  // "MT4129": what sysfs' hca_type says; may be empty
  double pcie_gts;            // the fastest link it has
  std::uint32_t pcie_lanes;
  double port_gbps;  // Gb/s, the fastest port
  std::string_view source;
};

std::span<const LinkGeneration> link_catalogue();
std::span<const GpuGeneration> gpu_catalogue();
std::span<const NicGeneration> nic_catalogue();

// The generation of a model such as "NVIDIA H100 80GB HBM3" or "MT43244 BlueField-3 integrated ConnectX-7"; nothing
// where the catalogue has none. The first word that matches in the table's order decides.
const GpuGeneration* find_gpu_generation(std::string_view model);
const NicGeneration* find_nic_generation(std::string_view model_or_type);
// Of a NIC: by its model, its RDMA device's type, or its PCI id.
const NicGeneration* find_nic_generation(const Machine& machine, const Nic& nic);

// GB/s per link and direction of a link of that kind, by its generation (0 where unknown; NVLink only) and the GPU's
// model; nothing where the catalogue has several for what is known.
std::optional<double> catalogue_link_gbs(LinkKind kind, std::uint32_t generation, std::string_view model);
// Fills in the catalogue's rate for links whose rate is not recorded.
void fill_link_rates(Machine& machine);

// The tables for people, and as one JSON object with the arrays links, gpus and nics.
std::string catalogue_text();
std::string catalogue_json();

}  // namespace fairway::topology
