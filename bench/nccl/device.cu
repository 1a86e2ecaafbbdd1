#include "device_beside.cuh"
#include "device_flags.cuh"
#include "device_odd.cuh"
#include "device_pauses.cuh"
#include "device_run.cuh"

// Kernels and streams that access another process's GPU directly, compared with NCCL in the same run (docs/cuda.md).
//   device [--parts flags,shape,beside,signals,switch,graph,eager,odd,pauses] [--to 1G] [--json FILE]
// Prints a table; FILE gets one JSON object per measurement. Buffers are poisoned before and every byte is compared
// after.
namespace {

using namespace device;
using Clock = std::chrono::steady_clock;

struct Bench : Run {
  // Time per hop in a graph that is launched `launches` times, one launch at a time.
  double time_graph(cudaGraphExec_t graph, int hops, int launches) {
    cudaEvent_t begin, end;
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    std::vector<double> all;
    for (int i = -2; i < launches; ++i) {
      side.meet();
      CUDA_CHECK(cudaEventRecord(begin, side.stream));
      CUDA_CHECK(cudaGraphLaunch(graph, side.stream));
      CUDA_CHECK(cudaEventRecord(end, side.stream));
      CUDA_CHECK(cudaStreamSynchronize(side.stream));
      float ms = 0;
      CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
      if (i >= 0) all.push_back(ms * 1e3 / hops);
    }
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    return median(all);
  }

  fairway::StreamWait wait_for() const {
    fairway::StreamWait wait;
    wait.word = side.word(0);
    wait.count = side.word(1);
    wait.timeout = std::chrono::seconds(20);
    wait.outcome = reinterpret_cast<std::uint32_t*>(side.word(2));
    return wait;
  }
  void put(std::size_t bytes, fairway::PutBy by, std::uint64_t offset) {
    fairway::StreamPut put;
    put.from = side.source;
    put.offset = offset;
    put.length = bytes;
    put.by = by;
    put.signal_offset = side.offset_of_word(0);
    FAIRWAY_CHECK(side.engine->stream_put(side.there.id, put, side.stream));
  }
  static int turns_of(std::size_t bytes) { return bytes <= (1u << 20) ? 50 : bytes <= (16u << 20) ? 10 : 2; }

  // Ping-pong: there and back `turns` times in one graph.
  double ours_in_graph(std::size_t bytes, fairway::PutBy by) {
    prepare(bytes);
    const int turns = turns_of(bytes);
    const cudaGraphExec_t graph = pair::capture(side.stream, [&] {
      for (int i = 0; i < turns; ++i) {
        if (side.rank == 0) put(bytes, by, 0);
        FAIRWAY_CHECK(side.engine->stream_wait_signal(wait_for(), side.stream));
        if (side.rank == 1) put(bytes, by, 0);
      }
    });
    const double us = time_graph(graph, 2 * turns, 15);
    see_outcome();
    verify("a put in a graph", bytes);
    CUDA_CHECK(cudaGraphExecDestroy(graph));
    return us;
  }
  // One direction, one transfer after the other.
  double ours_in_row(std::size_t bytes, fairway::PutBy by, int from = 0) {
    prepare(bytes);
    const int turns = turns_of(bytes);
    const cudaGraphExec_t graph = pair::capture(side.stream, [&] {
      for (int i = 0; i < turns; ++i) {
        if (side.rank == from) put(bytes, by, 0);
        if (side.rank != from) FAIRWAY_CHECK(side.engine->stream_wait_signal(wait_for(), side.stream));
      }
    });
    const double us = time_graph(graph, turns, 15);
    see_outcome();
    verify("a row of puts in a graph", bytes, 1 - from);
    CUDA_CHECK(cudaGraphExecDestroy(graph));
    return us;
  }
  // Both directions at once; each side waits for the other's bytes. NCCL's send/recv in a group does the same.
  double ours_exchanged(std::size_t bytes, fairway::PutBy by) {
    prepare(bytes);
    const int turns = turns_of(bytes);
    const cudaGraphExec_t graph = pair::capture(side.stream, [&] {
      for (int i = 0; i < turns; ++i) {
        put(bytes, by, 0);
        FAIRWAY_CHECK(side.engine->stream_wait_signal(wait_for(), side.stream));
      }
    });
    const double us = time_graph(graph, turns, 15);
    see_outcome();
    verify("an exchange in a graph", bytes);
    CUDA_CHECK(cudaGraphExecDestroy(graph));
    return us;
  }
  void nccl_send(std::size_t bytes) {
    NCCL_CHECK(nccl::library().ncclSend(side.source, bytes, nccl::uint8, 1 - side.rank, comm, side.stream));
  }
  void nccl_receive(std::size_t bytes) {
    NCCL_CHECK(nccl::library().ncclRecv(side.box, bytes, nccl::uint8, 1 - side.rank, comm, side.stream));
  }
  enum class Pattern { turns, row, exchange };
  double nccl_in_graph(std::size_t bytes, Pattern pattern) {
    prepare(bytes);
    const int turns = turns_of(bytes);
    const bool exchange = pattern == Pattern::exchange;
    if (side.rank == 0) nccl_send(bytes), nccl_receive(bytes);
    if (side.rank == 1) nccl_receive(bytes), nccl_send(bytes);
    CUDA_CHECK(cudaStreamSynchronize(side.stream));
    prepare(bytes);
    const cudaGraphExec_t graph = pair::capture(side.stream, [&] {
      for (int i = 0; i < turns; ++i) {
        if (exchange) NCCL_CHECK(nccl::library().ncclGroupStart());
        if (side.rank == 0 || exchange) nccl_send(bytes);
        if (side.rank == 1 || pattern != Pattern::row) nccl_receive(bytes);
        if (side.rank == 1 && pattern == Pattern::turns) nccl_send(bytes);
        if (exchange) NCCL_CHECK(nccl::library().ncclGroupEnd());
      }
    });
    const double us = time_graph(graph, pattern == Pattern::turns ? 2 * turns : turns, 15);
    verify("NCCL in a graph", bytes, pattern == Pattern::row ? 1 : -1);
    CUDA_CHECK(cudaGraphExecDestroy(graph));
    return us;
  }

  void measure_switch() {
    if (side.rank == 0) {
      std::printf("\nin a graph, by who moves the bytes (us)\n  %-8s", "size");
      for (const char* what : {"one by one", "in a row", "back", "both ways"}) std::printf("   %10s: kernel    engine", what);
    }
    for (std::size_t bytes = 4096; bytes <= options.to; bytes *= 4) {
      if (side.rank == 0) std::printf("\n  %-8s", text_of(bytes).c_str());
      const auto row = [&](const char* what, auto measure) {
        for (const fairway::PutBy by : {fairway::PutBy::kernel, fairway::PutBy::copy_engine}) {
          const bool kernel = by == fairway::PutBy::kernel;
          const double us = measure(by);
          if (side.rank == 0) std::printf(kernel ? "   %18.2f" : " %9.2f", us);
          say(what, bytes, kernel ? "kernel" : "copy engine", us);
        }
        std::fflush(stdout);
      };
      row("graph, one by one", [&](fairway::PutBy by) { return ours_in_graph(bytes, by); });
      row("graph, in a row", [&](fairway::PutBy by) { return ours_in_row(bytes, by); });
      row("graph, in a row from GPU 1", [&](fairway::PutBy by) { return ours_in_row(bytes, by, 1); });
      row("graph, both ways", [&](fairway::PutBy by) { return ours_exchanged(bytes, by); });
    }
    if (side.rank == 0) std::printf("\n");
  }

  static std::vector<std::size_t> sizes(std::size_t to) {
    std::vector<std::size_t> all;
    for (std::size_t bytes = 1024; bytes <= to; bytes *= 4)
      all.push_back(bytes);
    return all;
  }

  void measure_graph() {
    const auto heading = [](const char* what) { std::printf("   %10s %9s %5s %6s", what, "NCCL", "ratio", "GB/s"); };
    if (side.rank == 0) {
      std::printf("\nin a graph, us a transfer (GB/s of Fairway's)\n  %-8s", "size");
      heading("one by one");  // ping-pong; half of a round trip
      heading("in a row");  // one direction
      heading("both ways");  // both directions; each side waits for the other's
    }
    for (const std::size_t bytes : sizes(options.to)) {
      if (side.rank == 0) std::printf("\n  %-8s", text_of(bytes).c_str());
      const auto row = [&](const char* what, double ours, double theirs) {
        if (side.rank == 0)
          std::printf("   %10.2f %9.2f %5.2f %6.1f", ours, theirs, theirs / ours, static_cast<double>(bytes) / ours / 1e3);
        say(what, bytes, "fairway", ours);
        say(what, bytes, "nccl", theirs);
        std::fflush(stdout);
      };
      row("graph, one by one", ours_in_graph(bytes, fairway::PutBy::automatic), nccl_in_graph(bytes, Pattern::turns));
      row("graph, in a row", ours_in_row(bytes, fairway::PutBy::automatic), nccl_in_graph(bytes, Pattern::row));
      row("graph, both ways", ours_exchanged(bytes, fairway::PutBy::automatic), nccl_in_graph(bytes, Pattern::exchange));
    }
    if (side.rank == 0) std::printf("\n");
  }

  // ---- started by the host: each hop starts after the host has seen the one before ----

  double host_turns(std::size_t bytes, int turns, auto send, auto receive) {
    std::vector<double> all;
    for (int i = -3; i < turns; ++i) {
      if (i == -3 || bytes >= (64u << 20)) side.meet();
      const auto begin = Clock::now();
      if (side.rank == 0) send(), receive();
      if (side.rank == 1) receive(), send();
      const auto took = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
      if (i >= 0) all.push_back(took / 2);
    }
    return median(all);
  }
  // `turns` transfers from rank 0 to rank 1. The sender waits for each before the next; the receiver waits at the end.
  double host_row(int turns, auto send, auto receive) {
    std::vector<double> all;
    for (int run = 0; run < 4; ++run) {
      side.meet();
      const auto begin = Clock::now();
      for (int i = 0; i < turns; ++i) side.rank == 0 ? send() : receive();
      side.meet();
      if (run > 0) all.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / turns);
    }
    return median(all);
  }
  void measure_eager() {
    const auto heading = [](const char* what) {
      std::printf("   %10s %9s %9s %5s %6s", what, "put", "NCCL", "ratio", "GB/s");
    };
    if (side.rank == 0) {
      std::printf("\nstarted and seen by hosts that poll, us a transfer (ratio and GB/s of the write)\n  %-8s", "size");
      heading("one by one");
      heading("in a row");
    }
    fairway::Engine& engine = *side.engine;
    for (const std::size_t bytes : sizes(options.to)) {
      const int turns = bytes <= (1u << 20) ? 500 : bytes <= (64u << 20) ? 50 : 9;
      fairway::RequestOptions with;
      with.notify.kind = fairway::NotifyKind::event;
      with.deliver = fairway::Deliver::to_poll;
      const auto write = [&] {
        const auto id = engine.write(side.peer, fairway::Extent{{side.from.id, 0, bytes}, {side.remote.id, 0}}, with);
        FAIRWAY_CHECK(id.status());
        fairway::Completion completion;
        while (engine.poll({&completion, 1}) == 0) continue;
        FAIRWAY_CHECK(completion.status);
      };
      const auto notified = [&] {
        fairway::Notification notification;
        fairway::Completion completion;
        while (engine.poll_notifications({&notification, 1}) == 0) (void)engine.poll({&completion, 1});
      };
      const auto synchronize = [&] { CUDA_CHECK(cudaStreamSynchronize(side.stream)); };
      const auto start_put = [&] { put(bytes, fairway::PutBy::automatic, 0), synchronize(); };
      const auto await_put = [&] {
        FAIRWAY_CHECK(engine.stream_wait_signal(wait_for(), side.stream));
        synchronize();
      };
      const auto send = [&] { nccl_send(bytes), synchronize(); };
      const auto receive = [&] { nccl_receive(bytes), synchronize(); };
      if (side.rank == 0) std::printf("\n  %-8s", text_of(bytes).c_str());
      const auto row = [&](const char* what, int only, auto measure) {
        prepare(bytes);
        const double ours = measure(write, notified);
        verify("a write", bytes, only);
        prepare(bytes);
        const double by_stream = measure(start_put, await_put);
        see_outcome();
        verify("a put from a host", bytes, only);
        prepare(bytes);
        const double theirs = measure(send, receive);
        verify("NCCL from a host", bytes, only);
        if (side.rank == 0)
          std::printf("   %10.2f %9.2f %9.2f %5.2f %6.1f", ours, by_stream, theirs, theirs / ours,
                      static_cast<double>(bytes) / ours / 1e3);
        say(what, bytes, "fairway write and notification", ours);
        say(what, bytes, "fairway stream_put", by_stream);
        say(what, bytes, "nccl", theirs);
        std::fflush(stdout);
      };
      row("hosts, one by one", -1, [&](auto out, auto in) { return host_turns(bytes, turns, out, in); });
      row("hosts, in a row", 1, [&](auto out, auto in) { return host_row(turns, out, in); });
    }
    if (side.rank == 0) std::printf("\n");
  }

  int run() {
    ::alarm(900);  // the raw flags wait without a time limit
    side.open(options.to, fairway::Progress::caller);
    if (options.json != nullptr && side.rank == 0) json = std::fopen(options.json, "a");
    if (side.rank == 0) {
      cudaDeviceProp facts;
      CUDA_CHECK(cudaGetDeviceProperties(&facts, 0));
      std::printf("%s, two processes; a GPU reaches the other's memory by %s\n", facts.name, side.there.path_description.c_str());
    }
    if (options.has("graph") || options.has("eager")) {
      if (side.rank == 0) {
        nccl::UniqueId id;
        NCCL_CHECK(nccl::library().ncclGetUniqueId(&id));
        std::memcpy(side.shared.id, id.bytes, sizeof id.bytes);
      }
      side.meet();
      nccl::UniqueId id;
      std::memcpy(id.bytes, side.shared.id, sizeof id.bytes);
      NCCL_CHECK(nccl::library().ncclCommInitRank(&comm, 2, id, side.rank));
      int version = 0;
      NCCL_CHECK(nccl::library().ncclGetVersion(&version));
      if (side.rank == 0) std::printf("NCCL %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    }
    std::fflush(stdout);
    if (options.has("flags")) measure_flags(*this);
    if (options.has("shape")) measure_shape(*this);
    if (options.has("beside")) measure_beside(*this);
    if (options.has("signals")) measure_signal_behind_copies(*this);
    if (options.has("odd")) measure_odd(*this);
    if (options.has("pauses")) measure_pauses(*this);
    if (options.has("switch")) measure_switch();
    if (options.has("eager")) measure_eager();
    if (options.has("graph")) measure_graph();
    if (side.rank == 0) std::printf("\n%s\n", sound ? "every byte as it should be" : "WRONG BYTES, or a wait that did not end");
    std::fflush(stdout);
    side.close();
    return sound ? 0 : 1;
  }
};

std::size_t size_of(const std::string& words) {
  char* end = nullptr;
  const std::size_t number = std::strtoull(words.c_str(), &end, 10);
  return number << (*end == 'G' ? 30 : *end == 'M' ? 20 : *end == 'K' ? 10 : 0);
}

}  // namespace

int main(int count, char** words) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = words[i];
    if (name == "--parts") options.parts = words[i + 1];
    if (name == "--to") options.to = size_of(words[i + 1]);
    if (name == "--json") options.json = words[i + 1];
  }
  if (count % 2 == 0 || options.to < (4u << 20)) {
    std::fprintf(stderr, "device [--parts flags,shape,beside,signals,switch,graph,eager,odd,pauses] [--to 4M or more] [--json FILE]\n");
    return 2;
  }
  const pid_t asks = ::fork();  // CUDA must not start in this process, which forks later
  if (asks == 0) {
    int devices = 0;
    std::_Exit(cudaGetDeviceCount(&devices) == cudaSuccess ? std::min(devices, 100) : 0);
  }
  int status = 0;
  ::waitpid(asks, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) < 2) {
    std::printf("skipped: this needs two GPUs\n");
    return 0;
  }
  return pair::run([&](Side& side) { return Bench{{options, side}}.run(); });
}
