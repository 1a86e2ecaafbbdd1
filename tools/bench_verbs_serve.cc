#include <unistd.h>

#include "bench_verbs_wire.h"

namespace fairway::tool::bench::raw {
namespace {

constexpr std::chrono::milliseconds kQuiet(100);  // nothing came for so long after all was sent: it is lost

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count());
}

class Server {
 public:
  explicit Server(const Wire& wire) : wire_(wire) {}

  Answer obey(const Order& order) {
    switch (order.kind) {
      case Order::Kind::open: return open(order);
      case Order::Kind::reserve: {
        Answer answer = answer_of(end_->reserve(order.area));
        answer.place = end_->place();
        return answer;
      }
      case Order::Kind::pairs: return pairs(order);
      case Order::Kind::batch: return begin(order.batch);
      case Order::Kind::done: return finish(order.batch.count);
    }
    return answer_of({ErrorCode::protocol_error, "no such order"});
  }

  // The part of a batch that the measuring process waits for.
  void work() {
    const double spent = cpu_seconds();
    std::uint32_t next = 0;
    if (status_) status_ = shape_.answered() ? batch_.singly ? answer_each(next) : take_all(next) : Status();
    spent_ = cpu_seconds() - spent;
  }

 private:
  Answer open(const Order& order) {
    auto opened = End::open(order.device.data(), order.gid_index);
    Answer answer = answer_of(opened.status());
    if (!opened) return answer;
    end_ = std::move(*opened);
    put(answer.device, end_->port().device().name);
    answer.place = end_->place();
    return answer;
  }

  Answer pairs(const Order& order) {
    shape_ = order.shape;
    std::vector<verbs::Endpoint> theirs(shape_.queue_pairs);
    if (!wire_.receive(theirs.data(), theirs.size() * sizeof theirs[0])) ::_exit(0);
    auto own = end_->make_pairs(shape_, order.path_mtu);
    Status status = own ? end_->connect(theirs, order.place) : own.status();
    if (!own) own = std::vector<verbs::Endpoint>(shape_.queue_pairs);
    if (!wire_.send(own->data(), own->size() * sizeof theirs[0])) ::_exit(0);
    return answer_of(status);
  }

  Answer begin(const Batch& batch) {
    batch_ = batch;
    end_->forget();
    prepare_serving(*end_, shape_, batch_);
    counted_ = end_->counts();
    status_ = shape_.announced() ? end_->post_receives(batch.count, !batch.singly) : Status();
    last_ = 0;
    return answer_of(status_);
  }

  Answer finish(std::uint32_t done) {
    Answer answer = answer_of(status_);
    answer.verdict = check_serving(*end_, shape_, batch_, done);
    answer.verdict.last = last_;
    answer.counts = end_->counts().since(counted_);
    answer.cpu_seconds = spent_;
    return answer;
  }

  [[nodiscard]] bool came(std::uint32_t slot) const {
    return shape_.announced() ? end_->arrived() > slot : has_come(*end_, shape_, batch_, slot, false);
  }

  // Until that operation came. False: all was sent, and it did not.
  Result<bool> await(std::uint32_t slot) {
    for (int quiet = 0; quiet < 2;) {
      const auto there = end_->wait([&] { return came(slot); }, kQuiet);
      if (!there || *there) return there;
      if (wire_.has_something()) ++quiet;
    }
    return false;
  }

  Status answer_each(std::uint32_t& next) {
    for (; next < batch_.count; ++next) {
      const auto there = await(next);
      if (!there) return there.status();
      if (!*there) return {};
      const std::uint32_t pair = next % shape_.queue_pairs;
      if (Status status = end_->post(pair, next, 1, batch_.seed); !status) return status;
    }
    return end_->wait([&] { return end_->sent() == batch_.count; }, std::chrono::seconds(5)).status();
  }

  Status take_all(std::uint32_t& next) {
    for (; next < batch_.count; ++next) {
      if (!came(next)) last_ = now_ns();
      const auto there = await(next);
      if (!there) return there.status();
      if (!*there) return {};
    }
    last_ = now_ns();
    return {};
  }

  const Wire& wire_;
  std::unique_ptr<End> end_;
  Shape shape_;
  Batch batch_;
  Status status_;
  Counts counted_;
  double spent_ = 0;
  std::uint64_t last_ = 0;
};

}  // namespace

void serve(const Wire& wire) {
  Server server(wire);
  for (Order order; wire.receive(order);) {
    const Answer answer = server.obey(order);
    if (!wire.send(answer)) return;
    if (order.kind == Order::Kind::batch) server.work();
  }
}

}  // namespace fairway::tool::bench::raw
