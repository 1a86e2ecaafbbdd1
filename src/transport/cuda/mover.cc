#include "transport/cuda/mover.h"

#include <algorithm>
#include <cstring>

#include <unistd.h>

#include "sys/cuda_memory.h"
#include "transport/command.h"
#include "transport/host/transport.h"

namespace fairway::transport::cuda {
namespace {

// Most bytes queued at once: a few milliseconds' worth, since a peer that deregisters memory waits for them.
constexpr std::uint64_t kQueuedBetweenDevices = std::uint64_t{1} << 30;
constexpr std::uint64_t kQueuedWithHost = std::uint64_t{192} << 20;

// Copies smaller than this may be done by a kernel on that path.
std::uint64_t kernel_below(const host::Mover::Path& path) {
  if (!path.kernels) return 0;
  return path.most_queued == kQueuedBetweenDevices ? Queues::kKernelBelowBetweenGpus : Queues::kKernelBelow;
}

// The driver copies less host memory into the command itself. It has no such way back: it waits for a buffer of its own
// and copies from there, so what lands in host memory is worth pinning at any size.
constexpr std::uint64_t kPinFrom = 64 * 1024;

constexpr std::uint64_t kMaps = std::uint64_t{1} << 63;  // keys of mapped files; a region's handle is smaller

// Identifies this process; a forked one has another token.
ProcessToken own_process(Runtime& runtime) {
  static const ProcessToken random = [&] {
    ProcessToken made{};
    runtime.rng.fill(made);
    return made;
  }();
  ProcessToken token = random;
  const pid_t pid = ::getpid();
  std::memcpy(token.data(), &pid, sizeof pid);
  return token;
}

}  // namespace

CudaMover::CudaMover(Runtime& runtime, std::shared_ptr<const CudaDriver> driver, bool keep_awake)
    : keep_awake_(keep_awake),
      devices_(std::make_shared<Devices>(driver)),
      proofs_(std::make_shared<Proofs>(devices_)),
      exporter_(devices_, own_process(runtime)),
      gates_(std::make_shared<Gates>(devices_)),
      ready_(static_cast<std::size_t>(devices_->count())),
      end_words_(std::make_shared<EndWords>(driver)),
      closing_(std::make_shared<sys::CudaClosing>(driver)),
      pins_(std::make_shared<Pins>(devices_, opening_, closing_)),
      opening_(runtime, "fairway-cuda") {}

// What a running kernel may hold up is freed behind it: see CudaClosing.
CudaMover::~CudaMover() {
  opening_.finish();
  own_.clear();
  for (Device& device : ready_)
    if (device.queues)
      closing_->post([devices = devices_, queues = std::shared_ptr<Queues>(std::move(device.queues))]() mutable {
        queues.reset();
      });
  closing_->post([gates = std::move(gates_), words = std::move(end_words_)]() mutable {
    gates.reset();
    words.reset();
  });
}

Status CudaMover::attach(Task& task) {
  const std::lock_guard lock(waker_->mutex);
  waker_->task = &task;
  return {};
}

// Its calls end no capture of the program's.
Status CudaMover::open_on_thread(std::function<void()> job) {
  return opening_.post([devices = devices_, job = std::move(job)] {
    const sys::RelaxedCapture relaxed(devices->driver());
    job();
  });
}

std::uint8_t CudaMover::memory_kinds() const {
  return 1 << static_cast<unsigned>(MemoryKind::pinned) | 1 << static_cast<unsigned>(MemoryKind::device) |
         1 << static_cast<unsigned>(MemoryKind::managed);
}

// Opens a device's queues as early as possible: that may wait for running kernels, and a kernel that runs when the
// first slice is posted may be waiting for that slice.
Result<std::optional<host::Mover::Exported>> CudaMover::export_memory(const Region& memory) {
  auto exported = exporter_.export_memory(memory);
  const auto plain = exporter_.plain(memory.id);
  const int device = std::max(exporter_.device_of(memory.id), plain ? plain->pinned_by : -1);
  if (exported && device >= 0 && begins(device)) make_queues(device);
  return exported;
}

void CudaMover::end_export(RegionId region) {
  exporter_.end_export(region);
  own_.erase(handle_of(region));
}

void CudaMover::let_go(RegionId region) {
  if (pins_->knows(handle_of(region))) pins_->drop(handle_of(region), [waker = waker_] { waker->wake(); });
}

// Memory of the program's is unpinned before it returns, whatever kernel that waits for: the program may free it, and
// the driver would take its address for pinned memory still.
void CudaMover::close() {
  own_.clear();
  pins_->drop_all();
  opening_.finish();
  if (pins_->knows_below(kMaps)) closing_->wait();
  const std::lock_guard lock(waker_->mutex);
  waker_->task = nullptr;
}

bool CudaMover::export_ended(RegionId region) const {
  return !pins_->knows(handle_of(region));
}

std::shared_ptr<host::Mover::Hold> CudaMover::hold(std::shared_ptr<sys::MappedFile> map) {
  const std::uint64_t key = kMaps | next_map_++;
  auto* const hold = new Hold;  // deleted after pinning
  pins_->use(key, working_device(), map->address(), map->size_bytes(), [waker = waker_, hold](bool pinned) {
    hold->pinned.store(pinned, std::memory_order_relaxed);
    hold->settled.store(true, std::memory_order_release);
    waker->wake();
  });
  return std::shared_ptr<Hold>(hold,
                               [pins = pins_, key, map](Hold* ends) { pins->drop(key, [map, ends] { delete ends; }); });
}

std::optional<MemoryPlace> CudaMover::place_of(const void* address) const {
  const Pointer pointer = look_at(devices_->driver(), address);
  if (!pointer.kind) return {};
  // Pinned for another region, and only as long as that one is used.
  if (pointer.kind == MemoryKind::pinned && devices_->driver().pins().touches(address, 1)) return {};
  return MemoryPlace{*pointer.kind, *pointer.kind == MemoryKind::device ? devices_->bus_id(pointer.device) : ""};
}

MemoryPlace CudaMover::place_of(const Mover::Imported& imported) const {
  const auto device = devices_->find(static_cast<const ImportedAllocation&>(imported).handle().device);
  return {MemoryKind::device, device ? devices_->bus_id(*device) : ""};
}

std::shared_ptr<host::Mover::Imported> CudaMover::import(std::span<const std::byte> bytes) {
  Handle handle;
  if (auto decoded = decode(bytes))
    handle = std::move(*decoded);
  else
    handle.why = decoded.status().message();
  const bool ours = handle.process == exporter_.process();
  std::shared_ptr<ImportedAllocation> imported(
      new ImportedAllocation(devices_, proofs_, std::move(handle), ours),
      [closing = closing_](ImportedAllocation* ends) { closing->post([ends] { delete ends; }); });
  std::erase_if(imports_, [](const auto& each) { return each.expired(); });
  imports_.push_back(imported);
  open_views(imported);
  return imported;
}

std::shared_ptr<ImportedAllocation> CudaMover::held(const Mover::Imported& imported) const {
  for (const auto& each : imports_)
    if (auto found = each.lock(); found.get() == &imported) return found;
  return nullptr;
}

void CudaMover::open_views(const std::shared_ptr<ImportedAllocation>& imported) {
  if (imported->wants_file()) return;
  for (int device = 0; device < devices_->count(); ++device)
    if (ready_[static_cast<std::size_t>(device)].state.load(std::memory_order_acquire) == State::ready)
      open_view(imported, device);
}

bool CudaMover::wants_file(const Mover::Imported& imported) const {
  return static_cast<const ImportedAllocation&>(imported).wants_file();
}

void CudaMover::give_file(Mover::Imported& imported, sys::Fd file, const std::string& why_none) {
  static_cast<ImportedAllocation&>(imported).give(std::move(file), why_none);
  if (const auto mine = held(imported)) open_views(mine);
}

bool CudaMover::works_on(int device) const {
  return ready_[static_cast<std::size_t>(device)].state.load(std::memory_order_acquire) == State::ready ||
         devices_->works_on(device);
}

// The device that copies. If the local memory is on a GPU: that one. For local host memory: the peer's GPU if this
// process uses that too, else the one for which the memory was pinned, else one that this process uses. Two processes
// on one GPU share it by time slices of milliseconds.
int CudaMover::copier(RegionId local, const ImportedAllocation* remote) const {
  if (const int own = exporter_.device_of(local); own >= 0) return own;
  const int theirs = remote == nullptr ? -1 : devices_->find(remote->handle().device).value_or(-1);
  if (theirs >= 0 && works_on(theirs)) return theirs;
  if (const auto plain = exporter_.plain(local); plain && plain->pinned_by >= 0) return plain->pinned_by;
  const int working = working_device();
  return works_on(working) ? working : std::max(theirs, 0);
}

host::Mover::Readiness CudaMover::path(RegionId local, Mover::Imported* imported, const Use& use, Path& out,
                                       std::string& why) {
  auto* remote = static_cast<ImportedAllocation*>(imported);
  const int own = exporter_.device_of(local);
  const int device = copier(local, remote);
  if (own < 0 && (use.reads ? use.bytes > 0 : use.bytes >= kPinFrom))
    if (const auto plain = exporter_.plain(local); plain && plain->kind == MemoryKind::host)
      pins_->use(handle_of(local), device, plain->bytes.data(), plain->bytes.size(), [](bool) {});
  out.device = static_cast<std::uint32_t>(device);
  out.most_queued = own >= 0 && remote != nullptr ? kQueuedBetweenDevices : kQueuedWithHost;
  out.most_copied = out.most_queued / 4;
  out.kernels = own >= 0 || (use.pieces >= Queues::kBatchFrom && reached_by_kernels(local));
  Readiness ready = queues_of(device, why);
  if (ready != Readiness::ready || remote == nullptr) return ready;
  ready = view_of(*remote, device, why);
  if (ready != Readiness::ready) return ready;
  out.base = remote->view(device).base;
  out.size = remote->handle().size;
  return Readiness::ready;
}

// Copy engines take any memory of this process, if need be through the driver's own buffers. A kernel that accesses
// host memory which is not pinned ends the context with an illegal access. What this object has pinned stays so until
// its copies are over; what the program has pinned, it may have given up or freed since.
bool CudaMover::reached_by_kernels(RegionId local) const {
  const auto plain = exporter_.plain(local);
  if (!plain) return false;
  switch (plain->kind) {
    case MemoryKind::host: return pins_->pinned(handle_of(local));
    case MemoryKind::pinned:
      return sys::pinned_by_program(devices_->driver(), plain->bytes.data(), plain->bytes.size());
    case MemoryKind::managed: return true;
    case MemoryKind::device: break;
  }
  return false;
}

host::Mover::Readiness CudaMover::queues_of(int device, std::string& why) {
  Device& ready = ready_[static_cast<std::size_t>(device)];
  switch (ready.state.load(std::memory_order_acquire)) {
    case State::unopened:
      if (!begins(device)) return Readiness::opening;
      if (const Status posted = open_on_thread([this, device] { make_queues(device); }); !posted) {
        ready.why = why = posted.message();
        ready.state.store(State::refused, std::memory_order_release);
        return Readiness::refused;
      }
      [[fallthrough]];
    case State::opening: return Readiness::opening;
    case State::refused: why = ready.why; return Readiness::refused;
    case State::ready: break;
  }
  return Readiness::ready;
}

host::Mover::Readiness CudaMover::view_of(ImportedAllocation& memory, int device, std::string& why) {
  ImportedAllocation::View& view = memory.view(device);
  switch (view.state.load(std::memory_order_acquire)) {
    case State::unopened: open_view(held(memory), device); [[fallthrough]];
    case State::opening: return Readiness::opening;
    case State::refused: why = "the peer's GPU memory cannot be accessed: " + view.why; return Readiness::refused;
    case State::ready: break;
  }
  return Readiness::ready;
}

bool CudaMover::begins(int device) {
  State none = State::unopened;
  return ready_[static_cast<std::size_t>(device)].state.compare_exchange_strong(none, State::opening,
                                                                                std::memory_order_acq_rel);
}

// What a capture of the program's does not allow is tried again when somebody asks for it the next time.
void CudaMover::make_queues(int device) {
  Device& ready = ready_[static_cast<std::size_t>(device)];
  if (const auto context = devices_->use(device)) {
    const Current current(devices_->driver(), *context);
    gates_->prepare(device);
    (void)end_words_->prepare();  // if it fails, take() finds no word
  }
  auto queues = Queues::make(*devices_, device, keep_awake_);
  const bool later = queues.status().code() == ErrorCode::queue_full;
  if (queues)
    ready.queues = std::move(*queues);
  else
    ready.why = queues.status().message();
  ready.state.store(queues ? State::ready : later ? State::unopened : State::refused, std::memory_order_release);
  waker_->wake();
}

void CudaMover::open_view(const std::shared_ptr<ImportedAllocation>& imported, int device) {
  ImportedAllocation::View& view = imported->view(device);
  view.state.store(State::opening, std::memory_order_relaxed);
  const Status posted = open_on_thread([this, imported, device] {
    imported->open(device);
    waker_->wake();
  });
  if (posted) return;
  view.why = posted.message();
  view.state.store(State::refused, std::memory_order_release);
}

// A kernel has some hundred warps; each copies one piece at a time.
std::uint64_t CudaMover::part(const Path& path, std::uint64_t length, std::uint64_t count) const {
  if (count < Queues::kKernelFrom || length >= kernel_below(path)) return ~std::uint64_t{0};
  constexpr std::uint64_t kWarps = 512, kLeast = 2048;
  return std::max(kLeast, (length * count / kWarps + 15) / 16 * 16);
}

Status CudaMover::start(const Path& path, std::span<const Copy> copies, bool urgent, void* after, Ticket& out) {
  const Status status = ready_[path.device].queues->start(copies, kernel_below(path), urgent, after, out);
  out.queue += path.device * Queues::kCount;
  return status;
}

// A device that this process uses already; else the first.
int CudaMover::working_device() const {
  for (int device = 0; device < devices_->count(); ++device)
    if (works_on(device)) return device;
  return 0;
}

void CudaMover::flush() {
  for (Device& device : ready_)
    if (device.state.load(std::memory_order_acquire) == State::ready) device.queues->flush();
}

host::Mover::Readiness CudaMover::poll(const Ticket& ticket, std::string& why) {
  return ready_[ticket.queue / Queues::kCount].queues->poll(
      {ticket.queue % Queues::kCount, ticket.serial, ticket.failure}, why);
}

// NVLinks fall asleep after 50 ms without traffic, each by itself, and wake in 0.1 ms (docs/GOTCHAS.md).

std::optional<host::Mover::Waking> CudaMover::waking(const Mover::Imported& imported, std::uint32_t device) const {
  const auto& memory = static_cast<const ImportedAllocation&>(imported);
  const Device& ready = ready_[device];
  if (!memory.by_nvlink(static_cast<int>(device)) || ready.state.load(std::memory_order_acquire) != State::ready)
    return {};
  Waking waking;
  waking.into = ready.queues->scratch();
  if (waking.into.empty()) return {};
  waking.path.device = device;
  waking.path.base = memory.view(static_cast<int>(device)).base;
  waking.path.size = memory.handle().size;
  std::uint64_t halves[2];
  static_assert(sizeof halves == sizeof memory.handle().device);
  std::memcpy(halves, memory.handle().device.bytes, sizeof halves);
  waking.end = halves[0] ^ halves[1];
  return waking;
}

std::string CudaMover::path_description(const Mover::Imported& imported, bool touched) const {
  const auto& memory = static_cast<const ImportedAllocation&>(imported);
  bool by_nvlink = false;
  for (int device = 0; device < devices_->count(); ++device) by_nvlink |= memory.by_nvlink(device);
  std::string text = memory.path_description();
  if (!by_nvlink) return text;
  text += touched ? "; NVLink, kept awake"
                  : "; NVLink sleeps after 50 ms without traffic: the first transfer then takes about 0.2 ms";
  if (touched) return text;
  return text + (keep_awake_ ? ", since nothing of the peer's may be read to keep it awake"
                             : " (EngineOptions::keep_links_awake)");
}

}  // namespace fairway::transport::cuda
