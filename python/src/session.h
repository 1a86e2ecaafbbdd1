#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "views.h"

namespace fairway::python {

class Session;
struct Imported;

// Memory that is registered, and what keeps it from ending before its registration does. When the last user lets go it
// is deregistered; memory that somebody may still touch then is never freed. A resource, owned by its users.
class Registration {
 public:
  Registration(std::shared_ptr<Session> session, const Region& region, std::shared_ptr<Hold> hold);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  [[nodiscard]] const Region& region() const { return region_; }
  [[nodiscard]] bool live() const { return live_; }
  [[nodiscard]] const std::shared_ptr<Session>& session() const { return session_; }
  void check_live() const;  // raises Revoked
  // ok: nothing touches the memory any more. Else it stays registered and kept, and may be asked again.
  Status end(Timeout timeout);
  bool engine_closed();  // false: somebody may still touch the memory, which then stays for good

 private:
  void keep_for_good();

  const std::shared_ptr<Session> session_;
  const Region region_;
  std::shared_ptr<Hold> hold_;  // null: the owner's weak reference says when it ends
  bool live_ = true;
};

// Peers' regions as Python holds them. The engine gives a region the same id however often it is imported, and one
// release ends it for all: so all who import it share an Imported, none is released while an import is on its way, and
// an import waits for releases that have begun, which a worker does in microseconds.
class Imports {
 public:
  class OnItsWay {
   public:
    explicit OnItsWay(Imports& imports);
    ~OnItsWay() { --imports_.on_their_way_; }
    OnItsWay(const OnItsWay&) = delete;
    OnItsWay& operator=(const OnItsWay&) = delete;

   private:
    Imports& imports_;
  };
  [[nodiscard]] std::shared_ptr<Imported> find(RemoteRegionId id);  // null: nobody has it
  void add(const std::shared_ptr<Imported>& imported);
  void remove(const RemoteRegion& region);  // its last user is gone
  void release_all(Engine& engine);         // that have no user, when no import is on its way

 private:
  std::unordered_map<std::uint64_t, std::weak_ptr<Imported>> live_;  // by id
  std::vector<RemoteRegion> unused_;
  int on_their_way_ = 0;
  bool releasing_ = false;
};

// One engine as Python holds it: the engine, what is registered where, and the transfers that nobody waits for. Shared
// by everything that came from it; the engine is closed once, and freed with the last of them.
class Session : public std::enable_shared_from_this<Session> {
 public:
  explicit Session(std::shared_ptr<Engine> engine);
  ~Session();

  Engine& engine();       // raises in a forked child
  Engine& open_engine();  // and once it is closed
  [[nodiscard]] bool forked() const;
  void close();
  [[nodiscard]] bool closed() const { return closed_; }

  std::shared_ptr<Registration> add(void* address, std::uint64_t size_bytes, Access access, const MemorySource& source,
                                    std::shared_ptr<Hold> hold);
  void remove(const Registration& registration);
  // That covers these bytes; null: none does.
  [[nodiscard]] std::shared_ptr<Registration> find(std::uintptr_t address, std::uint64_t size_bytes);
  // The registration of an object's memory for local use: found, made for as long as its owner lives, or for one use.
  std::shared_ptr<Registration> of_view(py::handle object, const View& view);
  [[nodiscard]] std::size_t registrations() const { return by_address_.size(); }
  [[nodiscard]] Imports& imports() { return imports_; }
  // What `call`, which waits and cannot be cut into slices, gives. It runs on a thread of its own: Ctrl-C is seen
  // meanwhile, and leaves it behind, to end by itself or with the engine. So it owns what it uses.
  template <class Call>
  auto in_one(Call call) {
    const auto result = std::make_shared<std::optional<decltype(call())>>();
    wait_for_thread([result, call = std::move(call)] { result->emplace(call()); });
    return std::move(**result);
  }
  [[nodiscard]] const std::shared_ptr<Engine>& shared_engine() const { return engine_; }
  // Communicators whose memory is the engine's: it is not closed before they are. Any thread counts.
  [[nodiscard]] const std::shared_ptr<std::atomic<int>>& communicators() const { return communicators_; }

 private:
  void wait_for_communicators();
  void wait_for_thread(std::function<void()> work);

  const std::shared_ptr<Engine> engine_;  // a communicator that opened it holds it, too
  const std::shared_ptr<std::atomic<int>> communicators_ = std::make_shared<std::atomic<int>>(0);
  std::vector<std::future<void>> left_behind_;
  const int opened_in_;
  bool closed_ = false;
  Imports imports_;
  std::multimap<std::uintptr_t, std::weak_ptr<Registration>> by_address_;
  // Of owners that are alive; the weak reference's callback takes it out before the memory goes.
  std::unordered_map<PyObject*, std::pair<std::shared_ptr<Registration>, py::object>> owned_;
};

int forks();  // of this process since the module was loaded
// Those whose Communicator is gone and that an Operation keeps (group.cc).
void close_groups_of(const Session& session);

}  // namespace fairway::python
