#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "bench/memory.h"
#include "bench/pattern.h"
#include "orders.h"

// The measured work over Fairway, driven from this process.
namespace fairway::tool::bench {
namespace {

constexpr std::uint64_t kWord = 8;  // of an atomic

class Path final : public Mover {
 public:
  Path(Engine engine, const Settings& settings) : engine_(std::move(engine)), settings_(settings) {}
  ~Path() override {
    Order order;
    order.kind = Order::Kind::leave;
    if (peer_ && !abandoned_) (void)say(order);
  }
  void abandon() override { abandoned_ = true; }

  Status open(const std::string& address, Explanation* taken) {
    auto from = open_memory(engine_, settings_.from, settings_.most, Access::all);
    if (!from) return from.status();
    from_ = std::move(*from);
    auto back = open_memory(engine_, settings_.from, settings_.most, Access::all);
    if (!back) return back.status();
    back_ = std::move(*back);
    auto letters = engine_.allocate(4096, Access::none);
    if (!letters) return letters.status();
    letters_ = *letters;
    if (Status status = engine_.publish("bench-back", back_.region); !status) return status;
    const auto peer = engine_.connect(address);
    if (!peer) return peer.status();
    // It may have started just now, and pins its memory first.
    const auto target = engine_.lookup(*peer, "bench-target", std::chrono::seconds(30));
    if (!target) return Status(target.status()).with_context("is that `fairway bench --listen`?");
    target_ = *target;
    peer_ = *peer;
    if (target_.size_bytes < settings_.most)
      return {ErrorCode::out_of_range,
              fmt::format("the other process has {} of memory, {} are wanted: start it with --size",
                          size_text(target_.size_bytes), size_text(settings_.most))};
    // Warm up: find out where the region is and how to reach it, and wait for all links, which takes longer on busy
    // cores.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    do {
      if (Status status = finish(engine_, engine_.write(peer_, Extent{{from_.region.id, 0, 1}, {target_.id, 0}}));
          !status)
        return status;
    } while (connects() && std::chrono::steady_clock::now() < until);
    // A transfer of no bytes: it completes once all that others need is open.
    if (Status status = finish(engine_, engine_.write(peer_, Extent{{from_.region.id, 0, 0}, {target_.id, 0}}));
        !status)
      return status;
    if (taken == nullptr) return {};
    auto plan = engine_.explain(example(Operation::write));
    if (!plan) return plan.status();
    *taken = std::move(*plan);
    return {};
  }

  Expected expected(Operation operation) const override {
    Expected all;
    const auto plan = engine_.explain(example(operation));
    if (!plan) return all;
    for (const ExplainedLink& link : plan->links) {
      if (!link.taken || link.expected_low <= 0) continue;
      all.low += link.expected_low;
      all.high += link.expected_high;
      all.bound = link.bound;
    }
    return all;
  }

  // "cuda: CUDA IPC, to GPU 1", "staged over tcp", "tcp".
  std::string path_description(Operation operation) const override {
    const auto plan = engine_.explain(example(operation));
    if (!plan) return plan.status().message();
    std::string names;
    for (const ExplainedLink& link : plan->links) {
      const std::string name = link.name.substr(0, link.name.find('/'));
      if (link.taken && (", " + names + ",").find(", " + name + ",") == std::string::npos)
        names += (names.empty() ? "" : ", ") + name;
    }
    for (const std::string& note : plan->notes) {
      if (note.starts_with("staged:")) return "staged over " + names;
      if (!names.empty() && note.starts_with(names + ": ")) return note;
    }
    return names;
  }

  bool does(const Batch& batch) const override {
    if (batch.operation == Operation::fetch_add && batch.size != kWord) return false;
    return batch.pages == 0 ||
           (batch.depth == 1 && (batch.operation == Operation::write || batch.operation == Operation::read));
  }

  Status begin(const Batch& batch) override {
    const std::uint64_t bytes = bytes_of(batch);
    if (batch.operation != Operation::read)
      if (Status status = from_.fill(bytes, batch.seed); !status) return status;
    if (Status status = back_.clear(bytes); !status) return status;
    if (index_.size() != batch.pages) index_ = shuffled(batch.pages);
    Order order = order_of(batch);
    if (Status status = say(order); !status) return status;
    Answer answer;
    if (Status status = hear(answer); !status) return status;
    begun_ = spent(engine_);
    counted_ = engine_.counter(kTold);
    return {};
  }

  Status once(const Batch& batch, std::uint64_t round) override {
    const std::uint64_t at = batch.place(round) * batch.size;
    const Slice from{from_.region.id, at, batch.size};
    const Slice back{back_.region.id, at, batch.size};
    const RemoteAddress there{target_.id, at};
    switch (batch.operation) {
      case Operation::write:
      case Operation::read:
      case Operation::fetch_add: return move(batch, round);
      case Operation::send:
      case Operation::send_local: {
        const auto answer = engine_.receive(peer_, kBackTag, back, options());
        if (!answer) return answer.status();
        RequestOptions sent = options();
        sent.local_completion = batch.operation == Operation::send_local;
        const auto out = engine_.send(peer_, kThereTag, from, sent);
        if (!out) return out.status();
        if (settings_.sleeping) {
          if (Status status = finish(engine_, out); !status) return status;
          return finish(engine_, answer);
        }
        return poll_for(2);
      }
      case Operation::notify:
      case Operation::count: {
        RequestOptions told = options();
        told.notify.kind = batch.operation == Operation::notify ? NotifyKind::event : NotifyKind::counter;
        told.notify.immediate = kTold;
        const auto id = engine_.write(peer_, Extent{from, there}, told);
        if (!id) return id.status();
        const bool counts = batch.operation == Operation::count;
        return settings_.sleeping ? sleep_for_both(*id, counts, round) : poll_for_both(counts, round);
      }
    }
    return {};
  }

  Result<Cost> end(const Batch& batch) override {
    const Answer here = spent(engine_);
    Order order = order_of(batch);
    order.kind = Order::Kind::end;
    if (Status status = say(order); !status) return status;
    Answer there;
    if (Status status = hear(there); !status) return status;
    const std::uint64_t bytes = bytes_of(batch);
    std::uint64_t wrong = there.wrong;
    if (batch.operation != Operation::write && batch.operation != Operation::fetch_add) {
      const auto missed = back_.wrong(bytes, batch.seed);
      if (!missed) return missed.status();
      wrong += *missed;
    }
    if (wrong != 0)
      return Status(ErrorCode::checksum_mismatch,
                    fmt::format("{} of {} bytes are not where they belong after {} of {}: this is a bug of Fairway",
                                wrong, bytes, name_of(batch.operation), size_text(batch.size)));
    Cost cost;
    cost.cpu_seconds = here.cpu_seconds - begun_.cpu_seconds + there.cpu_seconds;
    cost.copied_bytes = static_cast<double>(here.copied - begun_.copied + there.copied);
    cost.system_calls = static_cast<double>(here.calls - begun_.calls + there.calls);
    cost.verified_bytes = one_sided(batch.operation) ? bytes : 2 * bytes;
    return cost;
  }

 private:
  // "not connected yet", "not verified yet"
  bool connects() const {
    const auto links = engine_.explain(peer_);
    return links &&
           std::ranges::any_of(links->links, [](const ExplainedLink& link) { return link.reason.ends_with(" yet"); });
  }
  Request example(Operation operation) const {
    Request request;
    request.operation = operation == Operation::read ? fairway::Operation::read : fairway::Operation::write;
    request.peer = peer_;
    request.layout = Extent{{from_.region.id, 0, std::min<std::uint64_t>(settings_.most, 1 << 20)}, {target_.id, 0}};
    return request;
  }
  static std::uint64_t bytes_of(const Batch& batch) {
    return batch.size * batch.places * std::max<std::uint64_t>(1, batch.pages);
  }
  static Order order_of(const Batch& batch) {
    Order order;
    order.operation = static_cast<std::uint64_t>(batch.operation);
    order.size = batch.size;
    order.rounds = batch.rounds;
    order.places = batch.places * std::max<std::uint64_t>(1, batch.pages);
    order.seed = batch.seed;
    return order;
  }
  RequestOptions options() const { return settings_.sleeping ? RequestOptions() : to_poll(); }

  // Completes the next `depth` operations; as many are always in flight, each at the next place.
  Status move(const Batch& batch, std::uint64_t round) {
    if (round == 0) started_ = 0;
    under_way_.resize(batch.depth);
    const std::uint64_t first = round * batch.depth, all = batch.rounds * batch.depth;
    for (std::uint64_t ended = first; ended < first + batch.depth;) {
      for (; started_ < std::min(ended + batch.depth, all); ++started_) {
        const auto id = start(batch, started_);
        if (!id) return id.status();
        under_way_[started_ % batch.depth] = *id;
      }
      if (batch.depth == 1 || settings_.sleeping) {
        const TransferId oldest = under_way_[ended % batch.depth];
        if (Status status = settings_.sleeping ? finish(engine_, oldest) : finish_spinning(engine_, oldest); !status)
          return status;
        ++ended;
        continue;
      }
      completions_.resize(first + batch.depth - ended);
      const std::size_t count = engine_.poll(completions_);
      for (std::size_t i = 0; i < count; ++i)
        if (!completions_[i].status) return completions_[i].status;
      ended += count;
    }
    return {};
  }

  Result<TransferId> start(const Batch& batch, std::uint64_t visit) {
    const std::uint64_t at = batch.place(visit);
    const RequestOptions one = batch.depth == 1 ? RequestOptions() : options();
    if (batch.operation == Operation::fetch_add)  // the first one sets the expected value
      return engine_.fetch_add(peer_, {target_.id, at * kWord}, visit == at ? pattern(batch.seed, at) : 0, one);
    const bool write = batch.operation == Operation::write;
    const RegionId local = write ? from_.region.id : back_.region.id;
    const Layout layout = batch.pages != 0
                              ? Layout(pages(batch, at, local))
                              : Layout(Extent{{local, at * batch.size, batch.size}, {target_.id, at * batch.size}});
    return write ? engine_.write(peer_, layout, one) : engine_.read(peer_, layout, one);
  }

  // Each page to the offset that it came from, so that the arrival can be checked.
  Paged pages(const Batch& batch, std::uint64_t place, RegionId local) {
    moved_.resize(index_.size());
    for (std::size_t i = 0; i < index_.size(); ++i) moved_[i] = index_[i] + place * batch.pages;
    return Paged{local, target_.id, batch.size, batch.size, batch.size, moved_, moved_};
  }

  // Until our write has completed and its answer has arrived.
  Status sleep_for_both(TransferId id, bool counts, std::uint64_t round) {
    std::array<Notification, 1> told;
    if (counts) {
      if (Status status = engine_.wait_counter(kTold, counted_ + round + 1, kPatience); !status) return status;
      return finish(engine_, id);
    }
    while (engine_.poll_notifications(told) == 0)
      if (Status status = engine_.wait_notification(kPatience); !status) return status;
    return finish(engine_, id);
  }
  Status poll_for(int completions) {
    std::array<Completion, 1> done;
    while (completions > 0) {
      if (engine_.poll(done) == 0) continue;
      if (!done[0].status) return done[0].status;
      --completions;
    }
    return {};
  }
  Status poll_for_both(bool counts, std::uint64_t round) {
    std::array<Notification, 1> told;
    std::array<Completion, 1> done;
    bool completed = false, answered = false;
    for (std::uint64_t turn = 1; !completed || !answered; ++turn) {
      if (engine_.poll(done) == 1) {
        if (!done[0].status) return done[0].status;
        completed = true;
      }
      answered =
          answered || (counts ? engine_.counter(kTold) > counted_ + round : engine_.poll_notifications(told) == 1);
      if (turn % (1 << 22) != 0) continue;
      std::array<PeerEvent, 1> event;
      while (engine_.poll_peer_events(event) == 1)
        if (event[0].kind == PeerEvent::Kind::down) return event[0].reason;
    }
    return {};
  }

  Status say(const Order& order) {
    std::memcpy(letters_.address, &order, sizeof order);
    return finish(engine_, engine_.send(peer_, kOrderTag, {letters_.id, 0, sizeof order}));
  }
  Status hear(Answer& answer) {
    if (Status status = finish(engine_, engine_.receive(peer_, kAnswerTag, {letters_.id, 1024, sizeof answer}));
        !status)
      return status;
    std::memcpy(&answer, letters_.address + 1024, sizeof answer);
    return {};
  }

  Engine engine_;
  const Settings settings_;
  NamedMemory from_, back_;
  Region letters_;
  PeerId peer_;
  RemoteRegion target_;
  Answer begun_;
  std::vector<std::uint64_t> index_, moved_;
  std::vector<TransferId> under_way_;
  std::vector<Completion> completions_;
  std::uint64_t started_ = 0;  // in this batch
  std::uint64_t counted_ = 0;  // before the batch
  bool abandoned_ = false;
};

}  // namespace

Result<std::unique_ptr<Mover>> open_path(const std::string& address, const Settings& settings, Explanation* taken) {
  EngineOptions wanted = engine_options(settings.sleeping, settings.via, settings.rdma);
  wanted.machine = settings.machine;
  wanted.job_key = settings.job_key;
  wanted.directory = settings.directory;
  if (!settings.job_key.empty()) wanted.listen = "0.0.0.0:0";  // the peer may be on another host, and connects back
  auto engine = Engine::open(wanted);
  if (!engine) return engine.status();
  auto path = std::make_unique<Path>(std::move(*engine), settings);
  if (Status status = path->open(address, taken); !status) return status;
  return std::unique_ptr<Mover>(std::move(path));
}

}  // namespace fairway::tool::bench
