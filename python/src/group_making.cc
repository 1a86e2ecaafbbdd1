#include <utility>

#include "group.h"

// How a communicator is made: where Ctrl-C is seen meanwhile, on a thread of its own.
namespace fairway::python {
namespace {

// A job that may be given up: Ctrl-C leaves it to its own thread.
struct Apart {
  std::mutex mutex;  // guards what follows
  std::condition_variable ended;
  std::optional<Result<Communicator>> made;
};

// Counted at an engine while it lives, from any thread.
class CountedAt {
 public:
  explicit CountedAt(const Session* session) : engine_(session == nullptr ? nullptr : session->shared_engine()) {
    if (session != nullptr) ++*(count_ = session->communicators());
  }
  CountedAt(CountedAt&&) = default;
  ~CountedAt() {
    if (count_ != nullptr) --*count_;
  }

 private:
  std::shared_ptr<Engine> engine_;  // goes behind the count: its last owner closes it
  std::shared_ptr<std::atomic<int>> count_;
};

// Ctrl-C interrupts it on the main thread: then it is told to stop, and goes on elsewhere until it has. That thread
// needs no interpreter, which may end before it.
Communicator made_apart(std::function<Result<Communicator>()> make, const Session* session, std::stop_source stop) {
  if (!is_main_thread()) {
    auto made = [&] {
      const Unlocked unlocked;
      return make();
    }();
    return take(std::move(made));
  }
  const auto apart = std::make_shared<Apart>();
  // The engine is neither closed nor freed under it.
  std::thread([engine = CountedAt(session), apart = std::shared_ptr<Apart>(apart), make = std::move(make)]() mutable {
    {
      auto made = make();
      const std::lock_guard lock(apart->mutex);
      apart->made = std::move(made);
    }
    apart->ended.notify_all();
    apart.reset();  // and a communicator that nobody waits for any more
  }).detach();
  try {
    check(wait_in_slices(Deadline(std::nullopt), [&](Timeout slice) -> Status {
      std::unique_lock lock(apart->mutex);
      if (apart->ended.wait_for(lock, slice, [&] { return apart->made.has_value(); })) return {};
      return {ErrorCode::timed_out, ""};
    }));
  } catch (...) {
    stop.request_stop();
    throw;
  }
  return take(std::move(*apart->made));
}

}  // namespace

std::shared_ptr<Group> Group::create(const std::shared_ptr<Session>& session, int rank,
                                     const std::vector<std::string>& addresses, const CommunicatorOptions& options) {
  Engine& engine = session->engine();
  const std::stop_source unheard;
  return std::make_shared<Group>(
      session,
      made_apart([&engine, rank, addresses, options] { return Communicator::create(engine, rank, addresses, options); },
                 session.get(), unheard));
}

std::pair<PyEngine, std::shared_ptr<Group>> Group::join(const JobOptions& options) {
  std::stop_source stop;
  JobOptions stoppable = options;
  stoppable.stop = stop.get_token();
  std::vector<std::string> lines;
  for (const char* const* line = options.environment; line != nullptr && *line != nullptr; ++line)
    lines.emplace_back(*line);
  const bool given = options.environment != nullptr;
  Communicator made = made_apart(
      [stoppable, lines = std::move(lines), given]() mutable {
        std::vector<const char*> environment;
        for (const std::string& line : lines) environment.push_back(line.c_str());
        environment.push_back(nullptr);
        stoppable.environment = given ? environment.data() : nullptr;
        return Communicator::join(stoppable);
      },
      nullptr, stop);
  const std::string own = options.communicator.name + "/rank-" + std::to_string(made.rank());
  PyEngine engine = engine_of(made.engine(), options.engine.name.empty() ? own : options.engine.name);
  auto session = engine.session;
  return {std::move(engine), std::make_shared<Group>(std::move(session), std::move(made))};
}

}  // namespace fairway::python
