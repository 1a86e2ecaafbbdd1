#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "bench/memory.h"
#include "bench/pattern.h"
#include "orders.h"

// The other process of a measurement. It serves one measuring process at a time, and polls only during a batch.
namespace fairway::tool::bench {
namespace {

class Server {
 public:
  Server(Engine& engine, const ServeOptions& options, NamedMemory memory, Region letters)
      : engine_(engine), options_(options), memory_(std::move(memory)), letters_(letters) {}

  // Until that peer leaves.
  Status obey(PeerId peer) {
    peer_ = peer;
    back_.reset();
    for (;;) {
      Order order;
      if (Status status = next(order); !status) return status;
      if (order.kind == Order::Kind::leave) return {};
      Answer answer;
      if (order.kind == Order::Kind::begin) {
        begun_ = spent(engine_);
        if (Status status = begin(order); !status) return status;
      } else {
        answer = spent(engine_);
        answer.cpu_seconds -= begun_.cpu_seconds;
        answer.copied -= begun_.copied;
        answer.calls -= begun_.calls;
        const bool arrived_here = order.operation != static_cast<std::uint64_t>(Operation::read);
        if (arrived_here) {
          const auto wrong = memory_.wrong(order.size * order.places, order.seed);
          if (!wrong) return wrong.status();
          answer.wrong = *wrong;
        }
        if (Status status = say(answer); !status) return status;
      }
    }
  }

 private:
  Status next(Order& order) {
    const auto id =
        engine_.receive(peer_, kOrderTag, {letters_.id, 0, sizeof order}, hot_ ? to_poll() : RequestOptions());
    if (!id) return id.status();
    Status status;
    if (hot_) {
      status = finish_hot(engine_, id);
    } else {  // for as long as it takes
      auto completion = engine_.wait(*id);
      status = completion ? completion->status : completion.status();
    }
    hot_ = false;
    if (!status) return status;
    std::memcpy(&order, letters_.address, sizeof order);
    if (!fits(order, options_.most))
      return {ErrorCode::out_of_range, "the request needs more memory than this process has"};
    return {};
  }

  Status say(const Answer& answer) {
    std::memcpy(letters_.address + 512, &answer, sizeof answer);
    return finish(engine_, engine_.send(peer_, kAnswerTag, {letters_.id, 512, sizeof answer}));
  }

  // Gets ready, reports it, and takes part in the rounds.
  Status begin(const Order& order) {
    const auto operation = static_cast<Operation>(order.operation);
    const std::uint64_t bytes = order.size * order.places;
    if (Status status = operation == Operation::read ? memory_.fill(bytes, order.seed) : memory_.clear(bytes); !status)
      return status;
    counts_ = operation == Operation::count;
    counted_ = engine_.counter(kTold);
    if ((operation == Operation::notify || counts_) && !back_) {
      auto back = engine_.lookup(peer_, "bench-back");
      if (!back) return back.status();
      back_ = *back;
    }
    if (Status status = say({}); !status) return status;
    hot_ = !options_.sleeping;
    for (std::uint64_t i = 0; i < order.rounds; ++i) {
      if (operation == Operation::notify || counts_)
        if (Status status = answer_notification(order, i); !status) return status;
      if (sends(operation))
        if (Status status = answer_message(order, i); !status) return status;
    }
    return {};
  }

  // Answers the round's notification with one of its own, without waiting for its completion.
  Status answer_notification(const Order& order, std::uint64_t round) {
    std::array<Notification, 1> told;
    std::array<Completion, 1> done;
    const auto came = [&] {
      return counts_ ? engine_.counter(kTold) > counted_ + round : engine_.poll_notifications(told) == 1;
    };
    for (std::uint64_t turn = 1; !came(); ++turn) {
      if (!hot_) {
        const Status status = counts_ ? engine_.wait_counter(kTold, counted_ + round + 1, kPatience)
                                      : engine_.wait_notification(kPatience);
        if (!status) return status;
        continue;
      }
      if (engine_.poll(done) == 1 && !done[0].status) return done[0].status;
      if (turn % (1 << 22) == 0 && gone()) return {ErrorCode::peer_dead, "the measuring process went away"};
    }
    RequestOptions options = hot_ ? to_poll() : RequestOptions();
    options.notify.kind = counts_ ? NotifyKind::counter : NotifyKind::event;
    options.notify.immediate = kTold;
    const std::uint64_t at = round % order.places * order.size;
    const auto id = engine_.write(peer_, Extent{{memory_.region.id, at, order.size}, {back_->id, at}}, options);
    if (!id) return id.status();
    return hot_ ? Status() : finish(engine_, id);
  }

  Status answer_message(const Order& order, std::uint64_t round) {
    const Slice place{memory_.region.id, round % order.places * order.size, order.size};
    const auto options = hot_ ? to_poll() : RequestOptions();
    if (round == 0) expected_ = engine_.receive(peer_, kThereTag, place, options);
    if (Status status = complete(expected_); !status) return status;
    if (round + 1 < order.rounds)  // before the answer that the next message waits for
      expected_ = engine_.receive(peer_, kThereTag,
                                  {memory_.region.id, (round + 1) % order.places * order.size, order.size}, options);
    auto sent = options;
    sent.local_completion = static_cast<Operation>(order.operation) == Operation::send_local;
    return complete(engine_.send(peer_, kBackTag, place, sent));
  }

  // Until that one is complete. The next message may come before it: then its completion is kept.
  Status complete(const Result<TransferId>& id) {
    if (!hot_) return finish(engine_, id);
    if (!id) return id.status();
    if (early_ && early_->id == *id) return std::exchange(early_, std::nullopt)->status;
    std::array<Completion, 1> done;
    for (;;) {
      if (engine_.poll(done) == 0) continue;  // the engine completes it when the peer goes away
      if (!done[0].status || done[0].id == *id) return done[0].status;
      early_ = done[0];
    }
  }

  bool gone() {
    std::array<PeerEvent, 1> event;
    while (engine_.poll_peer_events(event) == 1)
      if (event[0].kind == PeerEvent::Kind::down) return true;
    return false;
  }

  Engine& engine_;
  const ServeOptions& options_;
  NamedMemory memory_;
  Region letters_;
  PeerId peer_;
  std::optional<RemoteRegion> back_;
  Result<TransferId> expected_ = TransferId{};  // the receive of the next message
  std::optional<Completion> early_;
  Answer begun_;
  std::uint64_t counted_ = 0;  // before the batch
  bool counts_ = false;
  bool hot_ = false;
};

}  // namespace

Status serve(const ServeOptions& options, const std::function<void(const std::string&)>& say) {
  EngineOptions wanted = engine_options(options.sleeping, options.via, options.rdma);
  wanted.name = "the other process";
  wanted.listen = options.listen;
  wanted.job_key = options.job_key;
  wanted.directory = options.directory;
  auto engine = Engine::open(wanted);
  if (!engine) return engine.status();
  auto memory = open_memory(*engine, options.memory, options.most, Access::all);
  if (!memory) return memory.status();
  auto letters = engine->allocate(4096, Access::none);
  if (!letters) return letters.status();
  if (Status status = engine->publish("bench-target", memory->region); !status) return status;
  Server server(*engine, options, std::move(*memory), *letters);
  say(engine->address());
  std::array<PeerEvent, 1> event;
  for (;;) {
    if (engine->poll_peer_events(event) == 0) {
      (void)engine->wait_peer_event(std::chrono::seconds(1));
      continue;
    }
    if (event[0].kind != PeerEvent::Kind::up) continue;
    const Status left = server.obey(event[0].peer);
    const bool well = left || left.code() == ErrorCode::closed;  // the other side has what it wanted, or gave up
    if (options.once) return well ? Status() : left;
    if (!well) say(left.to_string());
  }
}

}  // namespace fairway::tool::bench
