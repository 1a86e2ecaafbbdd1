#include <utility>

#include "fairway/collectives.h"

#include "collectives/nccl/measure.h"
#include "collectives/state.h"

namespace fairway {

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Status Communicator::State::moved() {
  return {ErrorCode::closed, "this Communicator was moved from: use the one that it was moved to"};
}

int Communicator::rank() const {
  if (state_ == nullptr) return -1;
  return state_->rank();
}
int Communicator::size() const {
  if (state_ == nullptr) return 0;
  return state_->size();
}
Result<OperationId> Communicator::start(const Collective& operation) {
  if (state_ == nullptr) return State::moved();
  return state_->start(operation);
}
bool Communicator::test(OperationId operation) {
  if (state_ == nullptr) return true;
  return state_->test(operation);
}
Status Communicator::wait(OperationId operation) {
  if (state_ == nullptr) return State::moved();
  return state_->wait(operation);
}
Status Communicator::run(const Collective& operation) {
  if (state_ == nullptr) return State::moved();
  return state_->run(operation);
}
Status Communicator::use_gpu(int gpu, const GpuOptions& options) {
  if (state_ == nullptr) return State::moved();
  return state_->gpu.use_gpu(gpu, options).with_context("use_gpu");
}
Result<WindowId> Communicator::register_window(void* memory, std::uint64_t size_bytes) {
  if (state_ == nullptr) return State::moved();
  auto made = state_->gpu.register_window(memory, size_bytes);
  return made ? std::move(made) : Status(made.status()).with_context("register_window");
}
Status Communicator::deregister_window(WindowId window) {
  if (state_ == nullptr) return State::moved();
  return state_->gpu.deregister_window(window).with_context("deregister_window");
}
Status Communicator::stream_run(const Collective& operation, void* stream) {
  if (state_ == nullptr) return State::moved();
  return state_->gpu.run(operation, stream);
}
Status Communicator::stream_messages(std::span<const StreamMessage> group, void* stream,
                                     std::optional<Timeout> timeout) {
  if (state_ == nullptr) return State::moved();
  return state_->gpu.run_messages(group, stream, timeout);
}
Status Communicator::stream_status() {
  if (state_ == nullptr) return State::moved();
  return state_->gpu.status();
}
Result<std::string> Communicator::measure_gpu(std::size_t most_bytes, bool compare) {
  if (state_ == nullptr) return State::moved();
  if (Status open = state_->check_open(); !open) return open.with_context("measure_gpu");
  return collectives::measure_ways(*this, state_->gpu, most_bytes, compare);
}
std::string Communicator::explain_stream(const Collective& operation, bool captured) const {
  if (state_ == nullptr) return State::moved().to_string();
  return state_->gpu.explain(operation, captured);
}
std::shared_ptr<Engine> Communicator::engine() const {
  if (state_ == nullptr) return nullptr;
  if (state_->family->engine) return state_->family->engine;
  return {std::shared_ptr<Engine>(), &state_->engine};  // the caller's
}
std::string Communicator::address(int rank) const {
  if (rank < 0 || rank >= size()) return {};
  return state_->lanes.members()[static_cast<std::size_t>(rank)].address;
}
void Communicator::abort() {
  if (state_ == nullptr) return;
  state_->abort();
}
const CollectiveFailure& Communicator::failure() const {
  static const CollectiveFailure kMoved = [] {
    CollectiveFailure moved;
    moved.status = State::moved();
    return moved;
  }();
  if (state_ == nullptr) return kMoved;
  if (state_->aborted) (void)state_->check_open();
  return state_->failure;
}
Algorithm Communicator::chosen(const Collective& operation) const {
  if (state_ == nullptr) return Algorithm::automatic;
  return state_->chosen(operation);
}
std::string Communicator::explain(const Collective& operation) const {
  if (state_ == nullptr) return State::moved().to_string();
  return state_->explain(operation);
}
Result<std::string> Communicator::measure(std::size_t most_bytes, bool compare) {
  if (state_ == nullptr) return State::moved();
  if (Status open = state_->check_open(); !open) return open.with_context("measure");
  const auto agree = [](void* gpu, const Status& own) {
    return static_cast<collectives::GpuCalls*>(gpu)->all_say(own);
  };
  auto made = collectives::measure_hosts(*this, state_->ways, state_->near.groups > 1, most_bytes, compare, agree,
                                         &state_->gpu);
  return made ? std::move(made) : Status(made.status()).with_context("measure");
}

using collectives::Messages;

Result<MessageId> Communicator::start_send(const void* data, std::size_t size_bytes, int to, std::uint32_t tag,
                                           std::optional<Timeout> timeout) {
  if (state_ == nullptr) return State::moved();
  if (state_->aborted) return state_->check_open().with_context("send");
  return state_->messages.start(
      {Messages::Way::send, const_cast<void*>(data), size_bytes, to, tag, state_->timeout_of(timeout)});
}
Result<MessageId> Communicator::start_receive(void* data, std::size_t size_bytes, int from, std::uint32_t tag,
                                              std::optional<Timeout> timeout) {
  if (state_ == nullptr) return State::moved();
  if (state_->aborted) return state_->check_open().with_context("receive");
  return state_->messages.start({Messages::Way::receive, data, size_bytes, from, tag, state_->timeout_of(timeout)});
}
bool Communicator::test(MessageId message) {
  if (state_ == nullptr) return true;
  return state_->messages.test(message);
}
Status Communicator::wait(MessageId message, std::size_t* received) {
  if (state_ == nullptr) return State::moved();
  return state_->messages.wait(message, received);
}

Status Communicator::send(const void* data, std::size_t size_bytes, int to, std::uint32_t tag,
                          std::optional<Timeout> timeout) {
  const auto id = start_send(data, size_bytes, to, tag, timeout);
  return id ? wait(*id) : id.status();
}
Status Communicator::receive(void* data, std::size_t size_bytes, int from, std::uint32_t tag, std::size_t* received,
                             std::optional<Timeout> timeout) {
  const auto id = start_receive(data, size_bytes, from, tag, timeout);
  return id ? wait(*id, received) : id.status();
}

}  // namespace fairway
