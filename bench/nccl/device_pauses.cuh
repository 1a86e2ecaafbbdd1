#pragma once

#include "device_run.cuh"

// What a transfer takes after a pause, in which NVLinks fall asleep unless EngineOptions::keep_links_awake is set.
namespace device {

// Engines beside those of Side, with the option or without. Rank 0 writes, rank 1 looks on.
struct Pauses {
  using Clock = std::chrono::steady_clock;
  Run& run;
  fairway::Engine engine;
  fairway::PeerId peer;
  fairway::Region from;
  fairway::RemoteRegion box;

  // Waits for the other process; drives the engine meanwhile.
  void meet() {
    const std::uint64_t mine = run.side.shared.arrived.fetch_add(1);
    while (run.side.shared.arrived.load() < (mine / 2 + 1) * 2) drive();
  }
  void drive() {
    fairway::Completion completion;
    (void)engine.poll({&completion, 1});
  }
  void join() {
    Side& side = run.side;
    const auto own = engine.register_memory(side.box, side.bytes, fairway::Access::all);
    FAIRWAY_CHECK(own.status());
    FAIRWAY_CHECK(engine.publish("box", *own));
    std::strncpy(side.shared.address[side.rank], engine.address().c_str(), sizeof side.shared.address[side.rank] - 1);
    meet();
    if (side.rank == 0) {
      const auto source = engine.register_memory(side.source, side.bytes, fairway::Access::none);
      FAIRWAY_CHECK(source.status());
      from = *source;
      const auto found = engine.connect(side.shared.address[1], pair::kSoon);
      FAIRWAY_CHECK(found.status());
      peer = *found;
      const auto there = engine.lookup(peer, "box", pair::kSoon);
      FAIRWAY_CHECK(there.status());
      box = *there;
    }
    meet();
  }
  double write(std::size_t bytes) {
    fairway::RequestOptions options;
    options.deliver = fairway::Deliver::to_poll;
    const auto begin = Clock::now();
    const auto id = engine.write(peer, fairway::Extent{{from.id, 0, bytes}, {box.id, 0}}, options);
    FAIRWAY_CHECK(id.status());
    fairway::Completion completion;
    while (engine.poll({&completion, 1}) == 0) continue;
    FAIRWAY_CHECK(completion.status);
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }
  double after_pauses(std::size_t bytes, std::chrono::milliseconds pause, bool polls) {
    std::vector<double> all;
    for (int turn = -2; turn < 15; ++turn) {
      const auto until = Clock::now() + pause;
      if (!polls) std::this_thread::sleep_until(until);
      while (polls && Clock::now() < until) drive();
      const double us = write(bytes);
      if (turn >= 0) all.push_back(us);
    }
    return median(all);
  }
  std::string path() {
    fairway::Request request;
    request.peer = peer;
    request.layout = fairway::Extent{{from.id, 0, 8}, {box.id, 0}};
    const auto plan = engine.explain(request);
    FAIRWAY_CHECK(plan.status());
    return plan->text();
  }
};

inline void measure_pauses(Run& run) {
  Side& side = run.side;
  using std::chrono::milliseconds;
  constexpr std::size_t kSizes[] = {8, std::size_t{64} << 10, std::size_t{1} << 20};
  if (side.rank == 0) {
    std::printf("\na write seen done by its caller, after pauses (us, median of 15)\n  %-34s", "");
    for (const std::size_t bytes : kSizes) std::printf("  %8s: 0 ms   45 ms  200 ms", text_of(bytes).c_str());
    std::printf("\n");
  }
  for (const fairway::Progress progress : {fairway::Progress::caller, fairway::Progress::threads})
    for (const bool kept : {false, true}) {
      fairway::EngineOptions options;
      options.progress = progress;
      options.keep_links_awake = kept;
      auto made = fairway::Engine::open(options);
      FAIRWAY_CHECK(made.status());
      Pauses pauses{run, std::move(*made), {}, {}, {}};
      pauses.join();
      const bool polls = progress == fairway::Progress::caller;
      if (side.rank == 0) {
        (void)pauses.write(8);  // all is open
        std::printf("  %s, %-9s", polls ? "caller that polls     " : "threads, caller sleeps", kept ? "kept awake" : "not kept  ");
        for (const std::size_t bytes : kSizes) {
          std::printf("  %8s", "");
          for (const int pause : {0, 45, 200}) {
            const double us = pauses.after_pauses(bytes, milliseconds(pause), polls);
            std::printf(" %7.1f", us);
            run.say(kept ? "after a pause, kept awake" : "after a pause", bytes,
                    (std::string(polls ? "caller, " : "threads, ") + std::to_string(pause) + " ms").c_str(), us);
            std::fflush(stdout);
          }
        }
        const std::string path = pauses.path();
        const bool says = path.find("NVLink, kept awake") != std::string::npos;
        if (says != kept) {
          std::fprintf(stderr, "\nexplain does not say so:\n%s\n", path.c_str());
          run.sound = run.sound && path.find("NVLink") == std::string::npos;  // without NVLink nothing sleeps
        }
        std::printf("\n");
      }
      pauses.meet();
      pauses.engine.close();
      side.meet();
    }
}

}  // namespace device
