#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/machine.h"

// NCCL's environment variables as NCCL reads them. Every rule asks here what a value means.
namespace fairway::doctor {

struct NcclSetting {
  std::string_view name;
  std::string_view means;    // the values, and what each means
  std::string_view unset;    // what NCCL does without it, by version
  std::string_view ignores;  // what NCCL passes over without a word
  std::string_view source;   // the file and function of NCCL's source that says so
};
std::span<const NcclSetting> nccl_settings();

// A number as NCCL's ncclLoadParam takes it: decimal, 0x or 0; text that is none counts as 0.
std::int64_t nccl_number(std::string_view value);

// The farthest class that NCCL_NET_GDR_LEVEL or NCCL_P2P_LEVEL still allows; none: NCCL does not know the word, and
// takes its default. NCCL has no NODE of its own: it counts as PHB.
std::optional<topology::PathKind> nccl_level(std::string_view value);
// How far GPUDirect RDMA goes while NCCL_NET_GDR_LEVEL is unset, for GPUs without NVLink-C2C.
inline constexpr topology::PathKind kNcclGdrLevel = topology::PathKind::pxb;

// NCCL_IB_GID_INDEX; none: NCCL chooses, by its default or by a negative value.
std::optional<std::uint32_t> nccl_gid_index(std::string_view value);

// NCCL_IB_HCA: "mlx5_0:1,mlx5_1", "=mlx5_0", "^mlx5_2", "^=mlx5_2".
struct NcclDevices {
  struct Entry {
    std::string name;  // a prefix, unless `exact`
    std::optional<std::uint32_t> port;
  };
  bool excludes = false;
  bool exact = false;
  std::vector<Entry> entries;

  [[nodiscard]] bool names(const Entry& entry, std::string_view device, std::uint32_t port) const;
  // Whether NCCL may use that port, if it is active: an empty list allows all.
  [[nodiscard]] bool allows(std::string_view device, std::uint32_t port) const;
};
NcclDevices nccl_devices(std::string_view value);

// docs/doctor-rules.md's table of them.
std::string nccl_settings_page();

}  // namespace fairway::doctor
