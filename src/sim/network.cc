#include "sim/network.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fairway::sim {

namespace {

constexpr std::size_t kLeastWindow = 64 * 1024;
constexpr Time kRetransmit = 20 * kMillisecond;
constexpr Time kSteadyLatency = 5 * kMicrosecond;

Time latency(Simulation& simulation) {
  if (simulation.steady_ways()) return kSteadyLatency;
  const bool slow = simulation.random().chance(20);
  return simulation.random().between(5 * kMicrosecond, slow ? 3 * kMillisecond : 60 * kMicrosecond);
}

// Whether nothing arrives that comes from `side`.
bool cut_off(const Connection& connection, std::uint64_t side) {
  const Connection::End* ends = connection.ends;
  return ends[0].network && ends[1].network &&
         connection.simulation->blocked(ends[side].network->index(), ends[1 - side].network->index());
}

Path* path_from(const Connection& connection, std::uint64_t side) {
  const Connection::End* ends = connection.ends;
  if (!ends[0].network || !ends[1].network) return nullptr;
  return connection.simulation->changed_path(ends[side].network->index(), ends[1 - side].network->index());
}

// Bytes that `side` may have sent without knowing that they were read: as by a kernel's autotuning, twice what the way
// moves in a round trip, within SimulationOptions::most_window. A way that nobody changed has the least.
std::size_t window(const Connection& connection, unsigned side) {
  const Path* const out = path_from(connection, side);
  if (out == nullptr) return kLeastWindow;
  const Path* const back = path_from(connection, 1 - side);
  const Time trip = out->delay + (back == nullptr ? 0 : back->delay) + 2 * kSteadyLatency;
  const std::uint64_t most = connection.simulation->most_window();
  const std::uint64_t rate = out->bytes_per_second;
  if (rate == 0) return out->delay == 0 ? kLeastWindow : most;
  const double moved = 2.0 * static_cast<double>(rate) * static_cast<double>(trip) / static_cast<double>(kSecond);
  return static_cast<std::size_t>(std::clamp(moved, static_cast<double>(kLeastWindow), static_cast<double>(most)));
}

bool swallows(const Connection& connection, std::uint64_t side, std::uint64_t count) {
  const Path* path = path_from(connection, side);
  return path != nullptr && path->longest != 0 &&
         std::min<std::uint64_t>(count, connection.segment_bytes) > path->longest;
}

void wake(Connection::End& end) {
  if (!std::exchange(end.announced, true) && end.list != nullptr) end.list->push_back(end.number);
  if (end.task) end.task->wake();  // a frozen or dead host runs it once it is thawed
}

// `count` more bytes of `side`'s stream arrive; 0 means the end of the stream. Arrivals are scheduled in order and a
// partition delays all of them alike. So a later arrival may deliver the bytes of earlier ones, in order.
void arrive(void* object, std::uint64_t side, std::uint64_t count);

void schedule(Connection& connection, unsigned side, std::uint64_t count) {
  Connection::Stream& stream = connection.ends[side].out;
  Simulation& simulation = *connection.simulation;
  Path* path = path_from(connection, side);
  const Time through = path == nullptr ? simulation.now() : path->through(simulation.now(), count);
  stream.last_arrival = std::max(stream.last_arrival + 1, through + latency(simulation));
  simulation.at(stream.last_arrival, &arrive, &connection, side, count);
}

void arrive(void* object, std::uint64_t side, std::uint64_t count) {
  Connection& connection = *static_cast<Connection*>(object);
  Connection::Stream& stream = connection.ends[side].out;
  Connection::End& to = connection.ends[1 - side];
  if (to.broken != ErrorCode::ok || (connection.ends[0].closed && connection.ends[1].closed)) return;
  const bool swallowed = swallows(connection, side, count);
  const Path* const path = path_from(connection, side);
  stream.stuck = swallowed || (stream.stuck && path != nullptr && path->longest != 0);
  if (stream.stuck || cut_off(connection, side))
    return connection.simulation->in(kRetransmit, &arrive, object, side, count);
  stream.arrived = std::min(stream.bytes.size(), stream.arrived + count);
  if (count == 0) {
    stream.arrived = stream.bytes.size();
    stream.fin_arrived = true;
  }
  if (!cut_off(connection, 1 - side)) stream.acknowledged = stream.arrived;
  wake(to);
}

// `side` learns that the connection was reset.
void reset(void* object, std::uint64_t side, std::uint64_t code) {
  Connection& connection = *static_cast<Connection*>(object);
  Connection::End& end = connection.ends[side];
  if (end.broken != ErrorCode::ok) return;
  if (code != static_cast<std::uint64_t>(ErrorCode::unreachable) && cut_off(connection, 1 - side))
    return connection.simulation->in(kRetransmit, &reset, object, side, code);
  end.broken = static_cast<ErrorCode>(code);
  wake(end);
}

void writable(void* object, std::uint64_t side, std::uint64_t) {
  wake(static_cast<Connection*>(object)->ends[side]);
}

// `side` learns that so many bytes of its stream were read.
void make_room(void* object, std::uint64_t side, std::uint64_t count) {
  Connection& connection = *static_cast<Connection*>(object);
  if (connection.ends[side].closed || connection.ends[side].broken != ErrorCode::ok) return;
  if (cut_off(connection, 1 - side)) return connection.simulation->in(kRetransmit, &make_room, object, side, count);
  Connection::Stream& stream = connection.ends[side].out;
  stream.held -= count;
  if (std::exchange(stream.full, false)) wake(connection.ends[side]);
}

void send_reset(Connection& connection, unsigned to) {
  connection.simulation->in(latency(*connection.simulation), &reset, &connection, to,
                            static_cast<std::uint64_t>(ErrorCode::system_error));
}

}  // namespace

class SimChannel final : public Channel {
 public:
  SimChannel(Connection& connection, unsigned side) : connection_(connection), side_(side) {}
  ~SimChannel() override {
    Connection::End& end = connection_.ends[side_];
    end.task = nullptr;
    end.list = nullptr;
    end.closed = true;
    if (end.network->dead() || end.broken != ErrorCode::ok) return;
    end.out.finished = true;
    if (end.connected) schedule(connection_, side_, 0);
  }

  Result<std::size_t> send(std::span<const std::byte> bytes) override {
    Connection::End& end = connection_.ends[side_];
    if (end.broken != ErrorCode::ok) return broken(end.broken);
    if (!end.connected) return std::size_t{0};
    Connection::Stream& stream = end.out;
    if (connection_.simulation->now() < end.full_until) return std::size_t{0};
    const std::size_t most = window(connection_, side_);
    std::size_t take = std::min(bytes.size(), most - std::min(most, stream.held));
    stream.full = take < bytes.size();
    Random& random = connection_.simulation->random();
    const bool steady = connection_.simulation->steady_ways();
    if (!steady && take > 1 && random.chance(50)) take = random.between(1, take);  // a short write
    if (stream.read == stream.bytes.size()) {
      stream.bytes.clear();
      stream.read = stream.arrived = stream.acknowledged = 0;
    }
    if (stream.bytes.size() + take > stream.bytes.capacity() && stream.read > kLeastWindow &&
        stream.read > stream.bytes.size() / 2) {
      stream.bytes.erase(stream.bytes.begin(), stream.bytes.begin() + static_cast<std::ptrdiff_t>(stream.read));
      stream.arrived -= stream.read;
      stream.acknowledged -= std::min(stream.acknowledged, stream.read);
      stream.read = 0;
    }
    stream.held += take;
    stream.bytes.insert(stream.bytes.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(take));
    if (connection_.ends[1 - side_].closed) {
      if (take != 0) send_reset(connection_, side_);
      return take;
    }
    for (std::size_t left = take; left > 0;) {  // the network splits the bytes into segments anew
      const std::size_t segment = !steady && random.chance(150) ? random.between(1, left) : left;
      schedule(connection_, side_, segment);
      left -= segment;
    }
    if (!stream.full && take < bytes.size()) {  // a short write leaves room: the socket is writable at once, or soon
      end.full_until = connection_.simulation->now() + (random.chance(500) ? 0 : random.below(kMillisecond));
      connection_.simulation->at(end.full_until, &writable, &connection_, side_);
    }
    return take;
  }

  Result<std::size_t> receive(std::span<std::byte> into) override {
    Connection::End& end = connection_.ends[side_];
    Connection::Stream& stream = connection_.ends[1 - side_].out;
    std::size_t take = std::min(into.size(), stream.arrived - stream.read);
    if (take != 0) {
      Random& random = connection_.simulation->random();
      if (!connection_.simulation->steady_ways() && take > 1 && random.chance(50)) take = random.between(1, take);
      std::memcpy(into.data(), stream.bytes.data() + stream.read, take);
      stream.read += take;
      if (stream.read == stream.bytes.size()) {  // thousands of connections are idle
        std::vector<std::byte>().swap(stream.bytes);
        stream.read = stream.arrived = stream.acknowledged = 0;
      }
      if (stream.read < stream.arrived) wake(end);  // level-triggered: more can be read
      const Path* const back = path_from(connection_, side_);
      if (back == nullptr)
        make_room(&connection_, 1 - side_, take);
      else
        connection_.simulation->in(back->delay, &make_room, &connection_, 1 - side_, take);
      return take;
    }
    end.announced = false;
    if (end.broken != ErrorCode::ok) return broken(end.broken);
    if (stream.fin_arrived) return Status(ErrorCode::closed, "the peer closed the connection");
    return std::size_t{0};
  }

  std::uint64_t unacknowledged() const override {
    const Connection::Stream& stream = connection_.ends[side_].out;
    return stream.bytes.size() - stream.acknowledged;
  }
  std::uint32_t swallowed_segment() const override {
    return connection_.ends[side_].out.stuck ? connection_.segment_bytes : 0;
  }
  bool announced() const override { return connection_.ends[side_].announced; }
  bool announce_in(std::vector<std::uint32_t>* list, std::uint32_t number) override {
    connection_.ends[side_].list = list;
    connection_.ends[side_].number = number;
    return true;
  }

  std::string peer_address() const override {
    return side_ == 0 ? connection_.address : connection_.ends[0].network->address() + ":1";
  }

 private:
  Status broken(ErrorCode code) const {
    if (code == ErrorCode::unreachable) return {code, connection_.address + ": connection refused"};
    return {code, peer_address() + ": connection reset by peer"};
  }

  Connection& connection_;
  const unsigned side_;
};

class SimListener final : public Listener {
 public:
  SimListener(SimNetwork& network, std::string address, Task& task)
      : network_(&network), address_(std::move(address)), task_(&task) {}
  ~SimListener() override {
    std::erase(network_->listeners_, this);
    for (Connection* connection : backlog_) send_reset(*connection, 0);
  }
  Result<std::unique_ptr<Channel>> accept(Task& wakes) override {
    if (backlog_.empty()) return std::unique_ptr<Channel>();
    Connection* connection = backlog_.front();
    backlog_.erase(backlog_.begin());
    if (!backlog_.empty()) task_->wake();
    connection->ends[1].task = &wakes;
    return std::unique_ptr<Channel>(std::make_unique<SimChannel>(*connection, 1));
  }
  std::string address() const override { return address_; }
  void announce(Connection& connection) {
    backlog_.push_back(&connection);
    task_->wake();
  }

 private:
  SimNetwork* network_;
  const std::string address_;
  Task* const task_;
  std::vector<Connection*> backlog_;
};

SimNetwork::SimNetwork(Simulation& simulation, std::size_t index, std::size_t place)
    : simulation_(simulation), index_(index), place_(place) {
  simulation.networks_at(address()).push_back(this);
}

SimNetwork::~SimNetwork() = default;

SimListener* SimNetwork::find(const std::string& address) {
  for (SimListener* listener : listeners_)
    if (listener->address() == address) return listener;
  return nullptr;
}

Result<std::unique_ptr<Channel>> SimNetwork::dial_in_segments(const std::string& address, std::uint32_t most_bytes,
                                                              Task& wakes) {
  if (const Result<bool> parsed = is_loopback(address); !parsed) return parsed.status();
  connections_.push_back(std::make_unique<Connection>());
  Connection& connection = *connections_.back();
  connection.simulation = &simulation_;
  connection.address = address;
  connection.segment_bytes = most_bytes;
  connection.ends[0].network = this;
  connection.ends[0].task = &wakes;
  simulation_.in(latency(simulation_), &SimNetwork::syn, &connection);
  return std::unique_ptr<Channel>(std::make_unique<SimChannel>(connection, 0));
}

// The dialed host's kernel answers, also while its process is frozen.
void SimNetwork::syn(void* object, std::uint64_t, std::uint64_t) {
  Connection& connection = *static_cast<Connection*>(object);
  Simulation& simulation = *connection.simulation;
  SimNetwork& from = *connection.ends[0].network;
  if (from.dead()) return reset(object, 0, static_cast<std::uint64_t>(ErrorCode::unreachable));
  if (connection.ends[0].closed) return;
  const std::size_t port = connection.address.rfind(':');
  const std::string ip = connection.address.substr(0, port);
  for (SimNetwork* to : ip == "127.0.0.1" ? std::vector<SimNetwork*>{&from} : simulation.networks_at(ip)) {
    const bool named = ip == to->address() || (ip == "127.0.0.1" && to == &from);
    if (to->dead() || !named) continue;
    if (simulation.blocked(from.index(), to->index())) return simulation.in(kRetransmit, &SimNetwork::syn, object);
    if (SimListener* listener = to->find(connection.address)) {
      connection.ends[1].network = to;
      connection.ends[1].connected = true;
      to->accepted_.push_back(&connection);
      listener->announce(connection);
      return simulation.in(latency(simulation), &SimNetwork::answer, object, 0);
    }
    break;
  }
  simulation.in(latency(simulation), &SimNetwork::answer, object, 1);
}

void SimNetwork::answer(void* object, std::uint64_t refused, std::uint64_t) {
  Connection& connection = *static_cast<Connection*>(object);
  if (cut_off(connection, 1)) return connection.simulation->in(kRetransmit, &SimNetwork::answer, object, refused);
  if (refused != 0) return reset(object, 0, static_cast<std::uint64_t>(ErrorCode::unreachable));
  Connection::End& end = connection.ends[0];
  end.connected = true;
  if (end.closed) return schedule(connection, 0, 0);
  wake(end);
}

Result<std::unique_ptr<Listener>> SimNetwork::listen(const std::string& address, Task& wakes) {
  if (const Result<bool> parsed = is_loopback(address); !parsed) return parsed.status();
  const std::size_t colon = address.rfind(':');
  std::string bound = address;
  if (address.substr(colon + 1) == "0") bound = address.substr(0, colon + 1) + std::to_string(next_port_++);
  if (find(bound)) return Status(ErrorCode::already_exists, bound + ": address in use");
  auto listener = std::make_unique<SimListener>(*this, bound, wakes);
  listeners_.push_back(listener.get());
  return std::unique_ptr<Listener>(std::move(listener));
}

Result<std::vector<InterfaceAddress>> SimNetwork::addresses() {
  return std::vector<InterfaceAddress>{{"sim0", address(), false, 0}};
}

Result<bool> SimNetwork::is_loopback(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  const bool digits = colon != std::string::npos && colon + 1 < address.size() &&
                      std::all_of(address.begin() + static_cast<std::ptrdiff_t>(colon) + 1, address.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || colon == 0) return Status(ErrorCode::invalid_argument, address + ": not host:port");
  return address.starts_with("127.");
}

void SimNetwork::kill() {
  dead_ = true;
  for (const auto& connection : connections_)
    if (!connection->ends[0].closed && connection->ends[1].network) send_reset(*connection, 1);
  for (Connection* connection : accepted_)
    if (!connection->ends[1].closed) send_reset(*connection, 0);
  // The dead side learns too, so that bury() finds every socket broken.
  for (const auto& connection : connections_) connection->ends[0].broken = ErrorCode::system_error;
  for (Connection* connection : accepted_) connection->ends[1].broken = ErrorCode::system_error;
}

void SimNetwork::cut(SimNetwork& other) {
  const auto cut_one = [&](Connection& connection) {
    const Connection::End* ends = connection.ends;
    if (ends[1].network != (this == ends[0].network ? &other : this) ||
        (ends[0].network != this && ends[0].network != &other))
      return;
    send_reset(connection, 0);
    send_reset(connection, 1);
  };
  for (const auto& connection : connections_) cut_one(*connection);
  for (Connection* connection : accepted_) cut_one(*connection);
}

}  // namespace fairway::sim
