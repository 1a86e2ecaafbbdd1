#include "fake_world.h"

#include <algorithm>
#include <cstring>

namespace fairway::control {

class FakeTask final : public Task {
 public:
  FakeTask(FakeWorld& world, FakeWorld::Node& node, Stepper& stepper) : world_(world), node_(node), stepper_(stepper) {
    world_.tasks_.push_back(this);
  }
  ~FakeTask() override { end(); }
  void end() override { std::erase(world_.tasks_, this); }
  void wake() override { next = std::min(next, world_.now_); }
  Status watch(int) override { return {}; }
  void unwatch(int) override {}

  FakeWorld& world_;
  FakeWorld::Node& node_;
  Stepper& stepper_;
  Time next = 0;
};

// One direction of a connection.
struct FakeWorld::Pipe {
  struct Chunk {
    Time at;
    std::vector<std::byte> bytes;
  };
  std::deque<Chunk> chunks;
  std::size_t used = 0;  // of the first chunk
  Time closed_at = kNever;
  FakeTask* reader = nullptr;
};

struct FakeWorld::Link {
  Pipe pipes[2];
  Node* nodes[2] = {nullptr, nullptr};
  std::string names[2];  // of the end, as the other sees it
  bool reset = false;
  bool taken = true;  // false: nobody listens; the dialer finds out
  int ends = 0;
};

class FakeChannel final : public Channel {
 public:
  FakeChannel(FakeWorld& world, std::shared_ptr<FakeWorld::Link> link, int end, FakeTask* task)
      : world_(world), link_(std::move(link)), end_(end) {
    link_->pipes[end_].reader = task;
    ++world_.open_ends;
  }
  ~FakeChannel() override {
    --world_.open_ends;
    auto& out = link_->pipes[1 - end_];
    out.closed_at = std::min(out.closed_at, world_.now_ + world_.latency);
    link_->pipes[end_].reader = nullptr;
    if (out.reader) world_.schedule(out.reader, out.closed_at);
  }

  Result<std::size_t> send(std::span<const std::byte> bytes) override {
    if (link_->reset) return broken();
    if (!link_->taken) return refused();
    auto& out = link_->pipes[1 - end_];
    std::vector<std::byte> copy(bytes.begin(), bytes.begin() + std::min(bytes.size(), world_.segment));
    const std::size_t size = copy.size();
    if (link_->nodes[0]->isolated || link_->nodes[1]->isolated) return size;
    if (world_.on_the_way && !world_.on_the_way(link_->names[1 - end_], copy)) {
      link_->reset = true;
      for (auto& pipe : link_->pipes)
        if (pipe.reader) world_.schedule(pipe.reader, world_.now_ + world_.latency);
      return size;
    }
    if (!copy.empty()) out.chunks.push_back({world_.now_ + world_.latency, std::move(copy)});
    if (out.reader) world_.schedule(out.reader, world_.now_ + world_.latency);
    return size;
  }
  Result<std::size_t> receive(std::span<std::byte> into) override {
    if (!link_->taken) return refused();
    auto& in = link_->pipes[end_];
    std::size_t got = 0;
    while (got < into.size() && !in.chunks.empty() && in.chunks.front().at <= world_.now_) {
      auto& bytes = in.chunks.front().bytes;
      const std::size_t part = std::min(into.size() - got, bytes.size() - in.used);
      std::memcpy(into.data() + got, bytes.data() + in.used, part);
      got += part;
      in.used += part;
      if (in.used < bytes.size()) break;
      in.chunks.pop_front();
      in.used = 0;
    }
    if (got) return got;
    if (link_->reset) return broken();
    if (in.chunks.empty() && in.closed_at <= world_.now_) return Status(ErrorCode::closed, "the other end closed");
    return std::size_t{0};
  }
  std::string peer_address() const override { return link_->names[1 - end_]; }

 private:
  static Status broken() { return {ErrorCode::link_failed, "connection reset"}; }
  static Status refused() { return {ErrorCode::unreachable, "connection refused"}; }

  FakeWorld& world_;
  std::shared_ptr<FakeWorld::Link> link_;
  const int end_;
};

class FakeListener final : public Listener {
 public:
  FakeListener(FakeWorld& world, FakeWorld::Node& node, FakeTask* task, std::string address)
      : world_(world), node_(node), task_(task), address_(std::move(address)) {
    world_.listeners_[address_] = this;
  }
  ~FakeListener() override { close(); }
  void close() {
    if (open_) world_.listeners_.erase(address_);
    open_ = false;
    for (auto& [at, link] : waiting) {
      link->reset = true;
      if (link->pipes[0].reader) world_.schedule(link->pipes[0].reader, world_.now_);
    }
    waiting.clear();
  }
  Result<std::unique_ptr<Channel>> accept(Task&) override {
    if (waiting.empty() || waiting.front().first > world_.now_) return std::unique_ptr<Channel>();
    auto link = std::move(waiting.front().second);
    waiting.pop_front();
    return std::unique_ptr<Channel>(new FakeChannel(world_, std::move(link), 1, task_));
  }
  std::string address() const override { return address_; }

  FakeWorld& world_;
  FakeWorld::Node& node_;
  FakeTask* task_;
  const std::string address_;
  bool open_ = true;
  std::deque<std::pair<Time, std::shared_ptr<FakeWorld::Link>>> waiting;
};

FakeWorld::~FakeWorld() = default;

FakeWorld::Node& FakeWorld::add_node() {
  nodes_.push_back(std::make_unique<Node>(*this));
  return *nodes_.back();
}

void FakeWorld::schedule(FakeTask* task, Time at) {
  task->next = std::min(task->next, std::max(at, now_));
}

bool FakeWorld::run_until(const std::function<bool()>& condition, Time duration) {
  const Time end = after(now_, duration);
  while (!condition()) {
    FakeTask* first = nullptr;
    for (FakeTask* task : tasks_)
      if (!task->node_.frozen && !task->node_.dead && (!first || task->next < first->next)) first = task;
    if (!first || first->next > end) {
      now_ = end;
      return condition();
    }
    now_ = std::max(now_, first->next);
    // A step that comes early because of one event must not forget when the next bytes arrive.
    first->next = kNever;
    Time arrival = kNever;
    for (auto& weak : links_)
      if (auto link = weak.lock())
        for (auto& pipe : link->pipes)
          if (pipe.reader == first) {
            for (auto& chunk : pipe.chunks)
              if (chunk.at > now_) arrival = std::min(arrival, chunk.at);
            if (pipe.closed_at > now_) arrival = std::min(arrival, pipe.closed_at);
          }
    for (auto& [address, listener] : listeners_)
      if (listener->task_ == first)
        for (auto& [at, link] : listener->waiting)
          if (at > now_) arrival = std::min(arrival, at);
    ++steps;
    const Time asked = first->stepper_.step(now_);
    if (std::find(tasks_.begin(), tasks_.end(), first) == tasks_.end()) continue;
    // A stepper that wants to go on at once comes back a little later, so that time passes.
    first->next = std::min({first->next, arrival, asked <= now_ ? now_ + kMicrosecond : asked});
    if (steps % 4096 == 0) std::erase_if(links_, [](auto& weak) { return weak.expired(); });
  }
  return true;
}

void FakeWorld::cut_connections() {
  for (auto& weak : links_)
    if (auto link = weak.lock()) {
      link->reset = true;
      for (auto& pipe : link->pipes) {
        pipe.chunks.clear();
        if (pipe.reader) schedule(pipe.reader, now_);
      }
    }
}

void FakeWorld::Node::kill() {
  dead = true;
  std::vector<FakeListener*> mine;
  for (auto& [address, listener] : world_.listeners_)
    if (&listener->node_ == this) mine.push_back(listener);
  for (FakeListener* listener : mine) listener->close();
  for (auto& weak : world_.links_)
    if (auto link = weak.lock(); link && (link->nodes[0] == this || link->nodes[1] == this)) {
      link->reset = true;
      for (auto& pipe : link->pipes)
        if (pipe.reader) world_.schedule(pipe.reader, world_.now_ + world_.latency);
    }
}

void FakeWorld::Node::fill(std::span<std::byte> out) {
  for (auto& byte : out) byte = static_cast<std::byte>(world_.random_());
}

Result<std::unique_ptr<Task>> FakeWorld::Node::start(const TaskOptions&, Stepper& stepper) {
  return std::unique_ptr<Task>(new FakeTask(world_, *this, stepper));
}

Result<std::unique_ptr<Signal>> FakeWorld::Node::make_signal() {
  return Status(ErrorCode::unsupported, "not in this world");
}

void FakeWorld::Node::wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline) {
  const Time limit = deadline == kNever ? 3600 * kSecond : deadline > world_.now_ ? deadline - world_.now_ : 0;
  if (dead || frozen) {  // whoever closes what was killed does not wait for it
    word.store(seen + 1);
    return;
  }
  world_.run_until([&] { return word.load() != seen; }, limit);
}

Result<std::unique_ptr<Channel>> FakeWorld::Node::dial(const std::string& address, Task& wakes) {
  auto& task = static_cast<FakeTask&>(wakes);
  ++world_.dials;
  auto link = std::make_shared<Link>();
  const auto found = world_.listeners_.find(address);
  link->nodes[0] = this;
  link->nodes[1] = found == world_.listeners_.end() ? this : &found->second->node_;
  link->names[0] = "127.0.0.1:1";
  link->names[1] = address;
  world_.links_.push_back(link);
  auto channel = std::unique_ptr<Channel>(new FakeChannel(world_, link, 0, &task));
  if (isolated || link->nodes[1]->isolated) return channel;
  if (found == world_.listeners_.end()) {
    link->taken = false;
    world_.schedule(&task, world_.now_ + world_.latency);
  } else {
    found->second->waiting.emplace_back(world_.now_ + world_.latency, link);
    world_.schedule(found->second->task_, world_.now_ + world_.latency);
  }
  return channel;
}

Result<std::unique_ptr<Listener>> FakeWorld::Node::listen(const std::string& address, Task& wakes) {
  std::string bound = address;
  if (bound.ends_with(":0")) bound = bound.substr(0, bound.size() - 1) + std::to_string(world_.next_port_++);
  if (world_.listeners_.contains(bound)) return Status(ErrorCode::already_exists, bound + " is taken");
  return std::unique_ptr<Listener>(new FakeListener(world_, *this, static_cast<FakeTask*>(&wakes), bound));
}

Result<bool> FakeWorld::Node::is_loopback(const std::string& address) {
  if (address.find(':') == std::string::npos) return Status(ErrorCode::invalid_argument, "not an address");
  return address.starts_with("127.");
}

}  // namespace fairway::control
