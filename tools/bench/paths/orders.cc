#include "orders.h"

#include <array>
#include <chrono>
#include <ctime>

#include "via.h"

namespace fairway::tool::bench {

Answer spent(const Engine& engine) {
  Answer answer;
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  answer.cpu_seconds = static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  for (const TransportMetrics& each : engine.metrics().transports) {
    answer.copied += each.copied_bytes;
    answer.calls += each.system_calls;
  }
  return answer;
}

RequestOptions to_poll() {
  RequestOptions options;
  options.deliver = Deliver::to_poll;
  return options;
}

Status finish(Engine& engine, const Result<TransferId>& id) {
  if (!id) return id.status();
  const auto completion = engine.wait(*id, kPatience);
  return completion ? completion->status : completion.status();
}

Status finish_hot(Engine& engine, const Result<TransferId>& id) {
  if (!id) return id.status();
  std::array<Completion, 1> done;
  for (;;) {
    if (engine.poll(done) == 0) continue;  // the engine completes it when the peer goes away
    if (!done[0].status || done[0].id == *id) return done[0].status;
  }
}

Status finish_spinning(Engine& engine, const Result<TransferId>& id) {
  if (!id) return id.status();
  for (;;) {
    const auto completion = engine.wait(*id, Timeout{0});
    if (completion) return completion->status;
    if (completion.status().code() != ErrorCode::timed_out) return completion.status();
    (void)engine.poll({});  // the engine completes it when the peer goes away
  }
}

EngineOptions engine_options(bool sleeping, const std::vector<std::string>& via, const RdmaOptions& rdma) {
  EngineOptions options;
  options.progress = sleeping ? fairway::Progress::threads : fairway::Progress::caller;
  // The engines of one case are not stepped while the next is opened. The end of a process is still detected at once.
  options.peer_timeout = std::chrono::seconds(30);
  use_only(options, via);
  options.rdma = rdma;
  return options;
}

}  // namespace fairway::tool::bench
