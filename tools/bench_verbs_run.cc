#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "bench_verbs_wire.h"

namespace fairway::tool::bench::raw {
namespace {

constexpr std::chrono::milliseconds kLost(1000);     // an answer that did not come by then will not
constexpr std::chrono::milliseconds kLook(200);      // between looks whether the other process is there
constexpr std::chrono::milliseconds kStuck(20'000);  // a reliable queue pair says so itself before
constexpr int kTries = 5;                            // of batches of which nothing arrives

Status gone() {
  return {ErrorCode::system_error, "the other process has ended"};
}

// The first other port that this one reaches, else the same one.
std::string far_port(const verbs::Port& near, int gid_index) {
  transport::VerbsOptions options;
  options.rdma.gid_index = gid_index;
  const std::string name = near.device().name;
  if (const auto all = verbs::open_ports(options))
    for (const auto& each : *all)
      if (each->device().name != name && verbs::can_meet(near.address(), each->address())) return each->device().name;
  return name;
}

// The other process, ended with this object. A resource.
class Other {
 public:
  ~Other() {
    wire_.reset();
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  Status start() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
      return {ErrorCode::system_error, std::string("cannot make sockets: ") + std::strerror(errno)};
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      {
        const Wire wire(ends[1]);
        serve(wire);
      }
      ::_exit(0);
    }
    ::close(ends[1]);
    wire_ = std::make_unique<Wire>(ends[0]);
    return pid_ > 0 ? Status() : Status(ErrorCode::system_error, "cannot start a second process");
  }
  [[nodiscard]] const Wire& wire() const { return *wire_; }
  Result<Answer> ask(const Order& order) const { return wire_->send(order) ? answer() : gone(); }
  [[nodiscard]] Result<Answer> answer() const {
    Answer answer;
    if (!wire_->receive(answer)) return gone();
    if (answer.code != ErrorCode::ok) return Status(answer.code, answer.text.data());
    return answer;
  }

 private:
  pid_t pid_ = -1;
  std::unique_ptr<Wire> wire_;
};

// What batches of one kind came to.
struct Sum {
  std::vector<double> us;  // each, one at a time
  double seconds = 0, cpu_seconds = 0;
  std::uint64_t operations = 0, lost = 0, verified_bytes = 0;
  Counts ours, theirs;
};

class Measuring {
 public:
  explicit Measuring(const Plan& plan) : plan_(plan) {}

  Status open() {
    if (Status status = other_.start(); !status) return status;
    auto opened = End::open(plan_.from, plan_.gid_index);
    if (!opened) return opened.status();
    end_ = std::move(*opened);
    Order order;
    put(order.device, plan_.to.empty() ? far_port(end_->port(), plan_.gid_index) : plan_.to);
    order.gid_index = plan_.gid_index;
    auto answer = other_.ask(order);
    if (!answer) return answer.status();
    there_ = answer->place;
    far_ = answer->device.data();
    const verbs::PortAddress& ours = end_->port().address();
    if (verbs::can_meet(ours, there_.address)) return {};
    return {ErrorCode::unreachable, fmt::format("{} ({}) and {} ({}) are of different networks: name others (--device)",
                                                near(), verbs::text_of(ours), far_, verbs::text_of(there_.address))};
  }

  // The shape's own wish for an MTU held against what both ports have.
  Result<std::uint32_t> path_mtu(const Shape& shape) const {
    const std::uint32_t most = std::min(end_->place().mtu, there_.mtu);
    if (shape.mtu > most)
      return Status(ErrorCode::invalid_argument,
                    fmt::format("--mtu {} is more than the {} of {} and {}: raise the MTU of their interfaces",
                                shape.mtu, most, near(), far_));
    return shape.mtu != 0 ? shape.mtu : most;
  }

  Status reserve(std::uint64_t area) {
    if (Status status = end_->reserve(area); !status) return status;
    Order order;
    order.kind = Order::Kind::reserve;
    order.area = area;
    auto answer = other_.ask(order);
    if (answer) there_ = answer->place;
    return answer.status();
  }

  Result<Row> row(const Shape& shape) {
    shape_ = shape;
    if (shape.atomic() && !(end_->place().atomics && there_.atomics))
      return Status(ErrorCode::unsupported,
                    fmt::format("{}: {} has no atomics", text_of(shape), end_->place().atomics ? far_ : near()));
    Row row;
    if (Status status = renew(); !status) return status;
    row.is_inline = end_->is_inline();
    Sum warm, singly, many;
    for (auto [sum, one] : {std::pair{&warm, true}, {&singly, true}, {&warm, false}, {&many, false}}) {
      const auto until = Clock::now() + std::chrono::duration<double>(sum == &warm ? 0 : plan_.seconds_per_row / 2);
      for (int tries = 0; tries == 0 || Clock::now() < until || (sum->operations == 0 && tries < kTries); ++tries) {
        const std::uint64_t lost = sum->lost;
        if (Status status = batch(one, sum == &warm, *sum); !status) return status;
        if (sum->lost != lost)  // receives are left over
          if (Status status = renew(); !status) return status;
      }
    }
    if (singly.us.empty() || many.operations == 0)
      return Status(ErrorCode::link_failed,
                    fmt::format("{}: nothing arrived at {}: take other ports (--device)", text_of(shape), far_));
    return told(std::move(row), singly, many, warm);
  }

 private:
  [[nodiscard]] const std::string& near() const { return end_->port().device().name; }

  Status renew() {
    auto mtu = path_mtu(shape_);
    if (!mtu) return mtu.status();
    auto own = end_->make_pairs(shape_, *mtu);
    if (!own) return own.status();
    Order order;
    order.kind = Order::Kind::pairs;
    order.shape = shape_;
    order.path_mtu = *mtu;
    order.place = end_->place();
    const std::size_t size = own->size() * sizeof(verbs::Endpoint);
    std::vector<verbs::Endpoint> theirs(own->size());
    const Wire& wire = other_.wire();
    if (!wire.send(order) || !wire.send(own->data(), size) || !wire.receive(theirs.data(), size)) return gone();
    const auto answer = other_.answer();
    return answer ? end_->connect(theirs, there_) : answer.status();
  }

  Status batch(bool singly, bool short_one, Sum& sum) {
    constexpr std::uint32_t kSingly = 64, kShort = 16;
    Batch batch{singly, shape_.slots(), ++seed_};
    if (singly) batch.count = std::min(batch.count, kSingly);
    if (short_one) batch.count = std::min(batch.count, std::max(kShort, shape_.post_list));
    end_->forget();
    prepare_measuring(*end_, shape_, batch);
    const Counts counted = end_->counts();
    if (singly && shape_.announced())
      if (Status status = end_->post_receives(batch.count, false); !status) return status;
    Order order;
    order.kind = Order::Kind::batch;
    order.batch = batch;
    if (auto answer = other_.ask(order); !answer) return answer.status();
    const double cpu = cpu_seconds();
    const auto start = Clock::now();
    std::uint32_t done = 0;
    Status status = singly ? one_by_one(batch, done, sum) : many_at_once(batch, done);
    auto end = Clock::now();
    sum.cpu_seconds += cpu_seconds() - cpu;
    order.kind = Order::Kind::done;
    order.batch.count = std::min(done + (singly ? 1 : 0), batch.count);  // the one that was lost was sent
    const auto answer = other_.ask(order);
    if (!answer) return answer.status();  // it knows more of what broke
    if (!status) return status;
    end = std::max(end, Clock::time_point(std::chrono::nanoseconds(answer->verdict.last)));
    sum.seconds += std::chrono::duration<double>(end - start).count();
    sum.cpu_seconds += answer->cpu_seconds;
    sum.ours.add(end_->counts().since(counted));
    sum.theirs.add(answer->counts);
    return judge(batch, done, answer->verdict, sum);
  }

  Status judge(const Batch& batch, std::uint32_t done, const Verdict& theirs, Sum& sum) {
    const Verdict ours = check_measuring(*end_, shape_, batch, done);
    const std::uint64_t lost = batch.singly ? (done < batch.count ? 1 : 0) : theirs.lost;
    const std::uint64_t wrong = ours.wrong_bytes + theirs.wrong_bytes;
    if (wrong != 0)
      return {ErrorCode::checksum_mismatch,
              fmt::format("{}: {} bytes from {} to {} are not what was sent", text_of(shape_), wrong, near(), far_)};
    if (lost != 0 && shape_.type == Type::rc)
      return {ErrorCode::checksum_mismatch, fmt::format("{}: {} of {} did not arrive at {}, and nothing said so",
                                                        text_of(shape_), lost, batch.count, far_)};
    sum.verified_bytes += ours.verified_bytes + theirs.verified_bytes;
    sum.operations += done - (batch.singly ? 0 : lost);
    sum.lost += lost;
    return {};
  }

  template <class Done>
  Result<bool> await(Done done, std::chrono::milliseconds patience) {
    for (std::chrono::milliseconds waited{0}; waited < patience; waited += kLook) {
      const auto there = end_->wait(done, kLook);
      if (!there || *there) return there;
      if (other_.wire().has_something()) return gone();  // it says nothing unasked
    }
    return false;
  }

  // Each from its posting until it is known to be there; where only its answer says so, half of that.
  Status one_by_one(const Batch& batch, std::uint32_t& done, Sum& sum) {
    const double ways = shape_.answered() ? 2 : 1;
    for (; done < batch.count; ++done) {
      const auto start = Clock::now();
      if (Status status = end_->post(done % shape_.queue_pairs, done, 1, batch.seed); !status) return status;
      const auto there = await(
          [&] {
            return shape_.watched()     ? has_come(*end_, shape_, batch, done, true)
                   : shape_.announced() ? end_->arrived() > done
                                        : end_->sent() > done;
          },
          shape_.type == Type::rc ? kStuck : kLost);
      if (!there) return there.status();
      if (!*there) return shape_.type == Type::rc ? stuck() : Status();
      sum.us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / ways);
    }
    return all_sent(batch.count);  // an answer overtakes the word that its question was taken
  }

  Status many_at_once(const Batch& batch, std::uint32_t& done) {
    std::uint32_t list = 0;
    while (done < batch.count) {
      const std::uint32_t pair = list++ % shape_.queue_pairs;
      const std::uint32_t count = std::min(shape_.post_list, batch.count - done);
      const auto room = await([&] { return end_->room(pair, count); }, kStuck);
      if (!room) return room.status();
      if (!*room) return stuck();
      if (Status status = end_->post(pair, done, count, batch.seed); !status) return status;
      done += count;
    }
    return all_sent(batch.count);
  }

  Status all_sent(std::uint64_t count) {
    const auto all = await([&] { return end_->sent() == count; }, kStuck);
    return !all ? all.status() : *all ? Status() : stuck();
  }

  [[nodiscard]] Status stuck() const {
    return {ErrorCode::timed_out, fmt::format("{}: {} completes nothing", text_of(shape_), near())};
  }

  Row told(Row row, Sum& singly, const Sum& many, const Sum& warm) const {
    row.shape = shape_;
    row.from = near();
    row.to = far_;
    row.mtu = *path_mtu(shape_);
    row.gid_index = end_->port().gid_index();
    row.rounds = singly.us.size();
    std::sort(singly.us.begin(), singly.us.end());
    const auto at = [&](std::size_t percent) {
      return singly.us[std::min(singly.us.size() - 1, singly.us.size() * percent / 100)];
    };
    row.p50_us = at(50);
    row.p99_us = at(99);
    row.operations = many.operations;
    const auto operations = static_cast<double>(many.operations);
    const double bytes = operations * static_cast<double>(shape_.size);
    row.operations_per_second = operations / many.seconds;
    row.bytes_per_second = bytes / many.seconds;
    row.cpu_seconds_per_gib = many.cpu_seconds / bytes * (1 << 30);
    row.ours = many.ours;
    row.theirs = many.theirs;
    row.lost = singly.lost + many.lost + warm.lost;
    row.verified_bytes = singly.verified_bytes + many.verified_bytes + warm.verified_bytes;
    return row;
  }

  const Plan& plan_;
  Other other_;
  std::unique_ptr<End> end_;
  Place there_;
  std::string far_;
  Shape shape_;
  std::uint64_t seed_ = 0;
};

}  // namespace

std::vector<PortName> two_ports() {
  const auto first = End::open("", -1);
  if (!first) return {};
  const auto second = End::open(far_port((*first)->port(), -1), -1);
  std::vector<PortName> out;
  for (const auto* each : {&first, &second})
    if (*each) {
      const verbs::Port& port = (**each)->port();
      out.push_back({port.context()->device->name, port.number(), port.gid_index(), verbs::text_of(port.address())});
    }
  return out;
}

Status run(const Plan& plan, const Meter& meter, std::vector<Row>& rows) {
  Measuring measuring(plan);
  if (Status status = measuring.open(); !status) return status;
  std::vector<Shape> fitting;
  Status misfit;
  std::uint64_t area = 0;
  for (const Shape& shape : plan.shapes) {
    const auto mtu = measuring.path_mtu(shape);
    if (!mtu) return mtu.status();
    if (Status status = fits(shape, *mtu); !status) {
      if (!plan.drop_what_does_not_fit) return status;
      misfit = status;
      continue;
    }
    fitting.push_back(shape);
    area = std::max(area, shape.slots() * shape.stride());
  }
  if (fitting.empty()) return misfit;
  if (Status status = measuring.reserve(area); !status) return status;
  for (const Shape& shape : fitting) {
    meter(text_of(shape));
    auto row = measuring.row(shape);
    if (!row) return row.status();
    rows.push_back(std::move(*row));
  }
  return {};
}

}  // namespace fairway::tool::bench::raw
