#include <array>
#include <span>

#include "module.h"
#include "transfers.h"

// What comes from peers: notifications, counters, and events about the peers themselves.
namespace fairway::python {
namespace {

using Counter = Whole<std::uint32_t, "a counter's number">;

struct PyNotification {
  PyPeer peer;
  std::uint32_t immediate = 0;
  std::string message;
};

struct PyCounters {
  PyEngine engine;
  CounterSpace space;
  bool over = false;  // released
};

struct PyPeerEvent {
  PyPeer peer;
  std::string kind, link, detail;
  std::uint64_t incarnation = 0;
  py::object reason = py::none();
};

using Most = Whole<std::size_t, "most">;

template <class Poll>
py::list notifications_by(PyEngine& self, std::size_t most, Poll poll) {
  Engine& engine = self.session->open_engine();
  std::vector<Notification> notes(std::min<std::size_t>(most, 256));
  const std::size_t count = unlocked([&] { return poll(engine, std::span(notes)); });
  py::list out;
  for (std::size_t i = 0; i < count; ++i)
    out.append(PyNotification{peer_of(self, notes[i].peer, ""), notes[i].immediate,
                              std::string(reinterpret_cast<const char*>(notes[i].message), notes[i].message_bytes)});
  return out;
}

py::list poll_notifications(PyEngine& self, Most most) {
  return notifications_by(self, most,
                          [](Engine& e, std::span<Notification> into) { return e.poll_notifications(into); });
}

py::list poll_peer_events(PyEngine& self, Most most) {
  static constexpr const char* kKinds[] = {"up", "down", "link_up", "link_down", "link_slow", "mapping_ended"};
  std::vector<PeerEvent> events(std::min<std::size_t>(most, 256));
  Engine& engine = self.session->open_engine();
  const std::size_t count = unlocked([&] { return engine.poll_peer_events(events); });
  py::list out;
  for (std::size_t i = 0; i < count; ++i) {
    const PeerEvent& event = events[i];
    out.append(PyPeerEvent{peer_of(self, event.peer, event.name), kKinds[static_cast<int>(event.kind)], event.link,
                           event.detail, event.incarnation, event.reason ? py::none() : exception_of(event.reason)});
  }
  return out;
}

// Waits until `poll` gives something, and gives the first of it.
template <class Wait, class Poll>
py::object wait_for_one(PyEngine& self, Seconds timeout, Wait wait, Poll poll) {
  const Deadline deadline(timeout);
  for (;;) {
    if (py::list found = poll(self, Most{1}); !found.empty()) return found[0];
    Engine& engine = self.session->engine();
    check(wait_in_slices(deadline, [&](Timeout slice) { return wait(engine, slice); }));
  }
}

PyCounters make_counters(PyEngine& self, Whole<std::uint32_t, "count"> count,
                         std::optional<Whole<std::uint32_t, "first">> first) {
  Engine& engine = self.session->engine();
  std::optional<std::uint32_t> from;
  if (first) from = first->value;
  return {self, take(unlocked([&] { return engine.make_counters(count, from); }))};
}

void release(PyCounters& counters) {
  Engine& engine = counters.engine.session->engine();
  if (!counters.over) check(unlocked([&] { return engine.release_counters(counters.space.id); }));
  counters.over = true;
}

}  // namespace

void bind_news(py::module_& module) {
  py::class_<PyNotification>(module, "Notification",
                             "A notification of a peer's transfer, delivered once all its bytes have arrived.")
      .def_readonly("peer", &PyNotification::peer)
      .def_readonly("immediate", &PyNotification::immediate)
      .def_property_readonly("message", [](const PyNotification& n) { return py::bytes(n.message); })
      .def("__repr__", [](const PyNotification& n) {
        return "<fairway.Notification " + std::to_string(n.immediate) + ", " + std::to_string(n.message.size()) +
               " bytes>";
      });
  py::class_<PyPeerEvent>(module, "PeerEvent", "A peer or a link came or went.")
      .def_readonly("kind", &PyPeerEvent::kind, "'up', 'down', 'link_up', 'link_down', 'link_slow' or 'mapping_ended'")
      .def_readonly("peer", &PyPeerEvent::peer)
      .def_readonly("link", &PyPeerEvent::link)
      .def_readonly("detail", &PyPeerEvent::detail)
      .def_readonly("incarnation", &PyPeerEvent::incarnation)
      .def_readonly("reason", &PyPeerEvent::reason, "the exception that says why, or None")
      .def("__repr__", [](const PyPeerEvent& e) {
        return "<fairway.PeerEvent " + e.kind + " " + (e.link.empty() ? e.peer.name : e.link) +
               (e.reason.is_none() ? "" : ": " + py::cast<std::string>(py::str(e.reason))) + ">";
      });
  py::class_<PyCounters>(
      module, "CounterSpace",
      "Notification numbers that are their owner's alone, from Engine.make_counters: their counters begin at 0, and\n"
      "their events come by this object's calls only. Lasts until release(), the end of `with`, or Engine.close.")
      .def_property_readonly("first", [](const PyCounters& c) { return c.space.first; })
      .def_property_readonly("count", [](const PyCounters& c) { return c.space.count; })
      .def(
          "poll_notifications",
          [](PyCounters& c, Most most) {
            return notifications_by(c.engine, most, [&](Engine& e, std::span<Notification> into) {
              return e.poll_notifications(c.space.id, into);
            });
          },
          py::arg("most") = 64,
          "poll_notifications(most=64) -> list of Notification\n\n"
          "Events with these numbers that are here, as a list; never waits. They hold the same credits as others.")
      .def(
          "wait_notification",
          [](PyCounters& c, Seconds timeout) {
            const CounterSpaceId id = c.space.id;
            return wait_for_one(
                c.engine, timeout, [id](Engine& e, Timeout t) { return e.wait_notification(id, t); },
                [id](PyEngine& e, Most most) {
                  return notifications_by(e, most, [id](Engine& engine, std::span<Notification> into) {
                    return engine.poll_notifications(id, into);
                  });
                });
          },
          py::arg("timeout") = py::none(),
          "wait_notification(timeout=None) -> Notification\n\n"
          "The next event with one of these numbers; raises TimedOut after `timeout` seconds, NotFound once it was "
          "released.")
      .def("release", &release,
           "release()\n\n"
           "Gives the numbers back. Events that were not polled are dropped, and what comes later with these numbers\n"
           "is nobody's: first make sure that peers send none.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__",
           [](PyCounters& c, const py::args&) {
             if (!c.engine.session->closed()) release(c);
           })
      .def("__repr__", [](const PyCounters& c) {
        return "<fairway.CounterSpace of " + std::to_string(c.space.count) + " from " + std::to_string(c.space.first) +
               (c.over ? ", released>" : ">");
      });
  auto engine = static_cast<py::class_<PyEngine>>(module.attr("Engine"));
  engine
      .def("poll_notifications", &poll_notifications, py::arg("most") = 64,
           "poll_notifications(most=64) -> list of Notification\n\n"
           "Those that are here, as a list; never waits.")
      .def(
          "wait_notification",
          [](PyEngine& e, Seconds timeout) {
            return wait_for_one(
                e, timeout, [](Engine& engine, Timeout t) { return engine.wait_notification(t); }, poll_notifications);
          },
          py::arg("timeout") = py::none(),
          "wait_notification(timeout=None) -> Notification\n\n"
          "The next one; raises TimedOut after `timeout` seconds.")
      .def("poll_peer_events", &poll_peer_events, py::arg("most") = 64,
           "poll_peer_events(most=64) -> list of PeerEvent\n\n"
           "Those that are here, as a list; never waits.")
      .def(
          "wait_peer_event",
          [](PyEngine& e, Seconds timeout) {
            return wait_for_one(
                e, timeout, [](Engine& engine, Timeout t) { return engine.wait_peer_event(t); }, poll_peer_events);
          },
          py::arg("timeout") = py::none(),
          "wait_peer_event(timeout=None) -> PeerEvent\n\n"
          "The next one; raises TimedOut after `timeout` seconds.")
      .def(
          "notifications",
          [](py::object self) { return py::module_::import("fairway.aio").attr("Notifications")(self); },
          "notifications() -> async iterator of Notification\n\nFor `async for`: every notification from now on, under "
          "asyncio.")
      .def(
          "peer_events", [](py::object self) { return py::module_::import("fairway.aio").attr("PeerEvents")(self); },
          "peer_events() -> async iterator of PeerEvent\n\nFor `async for`: every peer event from now on, under "
          "asyncio.")
      .def(
          "counter", [](PyEngine& e, Counter immediate) { return e.session->engine().counter(immediate); },
          py::arg("immediate"),
          "counter(immediate) -> int\n\n"
          "How many counter notifications of this number have come, ever.")
      .def("make_counters", &make_counters, py::arg("count"), py::arg("first") = py::none(),
           "make_counters(count, first=None) -> CounterSpace\n\n"
           "Takes notification numbers that nobody else of this engine gets, those from `first` on or any that are "
           "free.\n\n"
           "For a library beside others on one engine. AlreadyExists names what overlaps; at most 64 at a time.")
      .def(
          "wait_counter",
          [](PyEngine& e, Counter immediate, Whole<std::uint64_t, "at_least"> at_least, Seconds timeout) {
            Engine& engine = e.session->engine();
            check(wait_in_slices(Deadline(timeout),
                                 [&](Timeout t) { return engine.wait_counter(immediate, at_least, t); }));
            return engine.counter(immediate);
          },
          py::arg("immediate"), py::arg("at_least"), py::arg("timeout") = py::none(),
          "wait_counter(immediate, at_least, timeout=None) -> int\n\nWaits until the counter is there; gives it.");
}

}  // namespace fairway::python
