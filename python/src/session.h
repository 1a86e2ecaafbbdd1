#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "views.h"

namespace fairway::python {

class Session;

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
  // ok: nothing touches the memory any more. not_fenced: may be asked again.
  Status end(Timeout timeout);
  void engine_closed();

 private:
  const std::shared_ptr<Session> session_;
  const Region region_;
  std::shared_ptr<Hold> hold_;  // null: the owner's weak reference says when it ends
  bool live_ = true;
};

// One engine as Python holds it: the engine, what is registered where, and the transfers that nobody waits for. Shared
// by everything that came from it; the engine is closed once, and freed with the last of them.
class Session : public std::enable_shared_from_this<Session> {
 public:
  explicit Session(Engine engine);
  ~Session();

  Engine& engine();  // raises in a forked child
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

 private:
  Engine engine_;
  const int opened_in_;
  bool closed_ = false;
  std::multimap<std::uintptr_t, std::weak_ptr<Registration>> by_address_;
  // Of owners that are alive; the weak reference's callback takes it out before the memory goes.
  std::unordered_map<PyObject*, std::pair<std::shared_ptr<Registration>, py::object>> owned_;
};

int forks();  // of this process since the module was loaded

}  // namespace fairway::python
