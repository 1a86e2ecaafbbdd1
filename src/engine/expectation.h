#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "predict/model.h"
#include "transport/gpu_access.h"

namespace fairway::engine {

// Where one end of a transfer lies, in the numbering of one machine's model: 0 is host memory of whichever NUMA node,
// then come its GPUs, then its nodes.
using Place = std::uint16_t;
inline constexpr Place kAnyNode = 0;
inline constexpr Place kNoPlace = 0xffff;  // not known, or not of this machine

// The rates that the machine model expects of an engine's links. Immutable; any thread.
class Expectation {
 public:
  explicit Expectation(predict::Model model);

  [[nodiscard]] std::size_t places() const { return places_; }
  [[nodiscard]] Place place_of(const transport::MemoryPlace& memory, int numa_node) const;

  // Between a memory and the wire, through the NIC that has an RDMA device or interface of that name ("mlx5_0/1"), with
  // one queue pair; `outwards`: from the memory. Of kAnyNode the range over all of them. Nothing: the model has no such
  // NIC, or no figure.
  [[nodiscard]] std::optional<predict::Prediction> through(std::string_view device, Place place, bool outwards) const;
  // Between two memories of this machine, of which one at least is a GPU's. `by_kernel`: not by a copy engine.
  [[nodiscard]] std::optional<predict::Prediction> between(Place from, Place to, bool by_kernel) const;
  // Between two host memories of this machine, by one core's copies or by the kernel's sockets.
  [[nodiscard]] std::optional<predict::Prediction> copied(Place from, Place to, predict::Mover mover) const;

 private:
  [[nodiscard]] bool is_gpu(Place place) const;
  [[nodiscard]] std::vector<predict::Endpoint> endpoints(Place place) const;
  [[nodiscard]] std::optional<std::uint32_t> nic_of(std::string_view device) const;
  [[nodiscard]] std::optional<predict::Prediction> ask(predict::Flow flow, const std::vector<predict::Endpoint>& from,
                                                       const std::vector<predict::Endpoint>& to) const;

  predict::Model model_;
  std::size_t places_;
};

}  // namespace fairway::engine
