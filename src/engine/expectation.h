#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "core/runtime.h"
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

// Reads the machine once, when the first expected rate is needed. It runs on a thread of its own, because it reads
// files and asks drivers for up to a second.
class MachineDiscovery final : public Stepper {
 public:
  using Source = std::function<Result<predict::Model>()>;
  // Without a source there are no expected rates. `known` is called once, on that thread, when the machine has been
  // read.
  MachineDiscovery(Executor& executor, Source source, std::function<void()> known);

  void want();                                                                         // begins; any thread
  [[nodiscard]] bool ended() const { return ended_.load(std::memory_order_acquire); }  // or will never begin
  [[nodiscard]] const Expectation* found() const {
    return ended() ? found_.get() : nullptr;
  }  // for as long as this lives
  [[nodiscard]] Status problem() const { return ended() ? problem_ : Status(); }
  void close();  // waits for it

  Time step(Time now) override;

 private:
  Executor& executor_;
  const Source source_;
  const std::function<void()> known_;
  std::mutex mutex_;  // guards task_ and wanted_
  bool wanted_ = false;
  std::unique_ptr<Task> task_;
  std::unique_ptr<const Expectation> found_;  // written before ended_ is set
  Status problem_;
  std::atomic<bool> ended_;
};

}  // namespace fairway::engine
