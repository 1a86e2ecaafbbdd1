#include "requests.h"

#include <algorithm>

#include "notify.h"
#include "queues.h"

namespace fairway::python {
namespace {

// The transfer that another one waits for: one request of the same engine.
TransferId earlier(py::handle given, const Tracker& tracker) {
  if (!is<Transfer>(given))
    raise(ErrorCode::invalid_argument, std::string("after is a Transfer, not ") + Py_TYPE(given.ptr())->tp_name);
  const Work& work = *as<Transfer>(given).work;
  if (work.tracker.get() != &tracker) raise(ErrorCode::invalid_argument, "after names another engine's transfer");
  if (work.ids.size() != 1)
    raise(ErrorCode::invalid_argument, "after names a transfer of " + std::to_string(work.ids.size()) +
                                           " requests, and may name one of one: wait for this one");
  return work.ids[0];
}

// What every request may carry (RequestOptions), by name.
void read_options(PyRequest& out, const py::kwargs& options, bool on_gpu, int gpu) {
  RequestOptions& to = out.request.options;
  out.stream = py::none();
  py::object stream = py::none();
  for (const auto& [key, value] : options) {
    const std::string name = text_of(key, "an option's name");
    if (value.is_none()) continue;
    if (name == "notify") {
      PyNotify notify = notify_of(value);
      out.message = std::move(notify.message);
      to.notify = {notify.kind, notify.immediate, {}, {}, notify.value, notify.add};
      if (notify.remote != nullptr) {
        to.notify.signal = {notify.remote->region.id, notify.offset};
        out.pins.imported.push_back(std::move(notify.remote));
      }
    } else if (name == "after") {
      to.after = earlier(value, *out.tracker);
      out.pins.objects.push_back(py::reinterpret_borrow<py::object>(value));
    } else if (name == "deadline") {
      to.deadline = timeout_of(seconds_of(value, "deadline"));  // 0 or less: it has passed
    } else if (name == "checksum") {
      to.checksum = value_of<bool>(value, "checksum");
    } else if (name == "local_completion") {
      to.local_completion = value_of<bool>(value, "local_completion");
    } else if (name == "priority") {
      to.priority =
          choice<Priority>(value_of<std::string>(value, "priority"), "priority",
                           {{"bulk", Priority::bulk}, {"normal", Priority::normal}, {"urgent", Priority::urgent}});
    } else if (name == "stream") {
      stream = py::reinterpret_borrow<py::object>(value);
    } else if (name == "queue") {
      out.queue = queue_of(value, *out.tracker);
      to.queue = out.queue->id;
    } else if (name == "callback") {
      check_callable(value);
      out.callback = py::reinterpret_borrow<py::object>(value);
    } else {
      raise(ErrorCode::invalid_argument, "no option '" + name +
                                             "'; there are notify, after, deadline, checksum, "
                                             "local_completion, priority, stream, queue and callback");
    }
  }
  if (out.queue != nullptr && !out.callback.is_none())
    raise(ErrorCode::invalid_argument,
          "queue and callback: the Transfer comes by one of them, the queue's poll or a call");
  if (stream.is_none() && !on_gpu) return;
  // Looked up once, for good: code that is seldom run costs microseconds a call.
  static PyObject* const record = py::object(py::module_::import("fairway.cuda").attr("_record")).release().ptr();
  const py::object event = py::handle(record)(stream, gpu);
  if (event.is_none()) return;
  out.stream = event;
  out.stream_waits = !stream.is_none();
  to.start_after = reinterpret_cast<void*>(py::cast<std::uintptr_t>(event.attr("event")));
}

class Extents final : public Hold {
 public:
  std::vector<Extent> list;
};

void check_kinds(const Local& local, const Remote& remote) {
  if (local.kind == 0 || remote.kind == 0) return;  // bytes go with everything
  if (local.kind == remote.kind && local.shape.item_bytes == remote.shape.item_bytes) return;
  raise(ErrorCode::invalid_argument, "the local array's elements (" + std::string(1, local.kind) +
                                         std::to_string(local.shape.item_bytes) + ") are not the remote one's (" +
                                         std::string(1, remote.kind) + std::to_string(remote.shape.item_bytes) +
                                         "): Fairway moves bytes and converts nothing");
}

PyRequest begin(Operation operation, const std::shared_ptr<Tracker>& tracker, PeerId peer) {
  PyRequest out;
  out.request.operation = operation;
  out.request.peer = peer;
  out.tracker = tracker;
  return out;
}

bool is_nothing(py::handle local) {
  if (local.is_none()) return true;
  return is<PySlice>(local) ? as<PySlice>(local).length == 0 : view_of(local, true).shape.total_bytes() == 0;
}

// A write or read of no bytes: its notification alone. `remote`: where it goes.
void make_nothing(PyRequest& out, Session& session, const Remote& remote) {
  static std::uint64_t word;
  auto place = session.find(reinterpret_cast<std::uintptr_t>(&word), sizeof word);
  if (place == nullptr) place = session.add(&word, sizeof word, Access::none, {}, std::make_shared<Hold>());
  out.request.layout = Extent{{place->region().id, 0, 0}, {remote.imported->region.id, remote.shape.offset}};
  out.pins.registrations.push_back(std::move(place));
}

void pin(PyRequest& out, Local& local, py::handle object) {
  out.pins.registrations.push_back(std::move(local.registration));
  if (local.hold != nullptr) out.pins.holds.push_back(std::move(local.hold));
  out.pins.objects.push_back(py::reinterpret_borrow<py::object>(object));
}

// Options of a message, which starts after no stream: what torch's has ahead for its memory ends before the call does.
void read_message_options(PyRequest& out, const py::kwargs& options, bool on_gpu, int gpu) {
  if (options.contains("stream") && !options["stream"].is_none())
    raise(ErrorCode::invalid_argument,
          "stream is an option of write and read: synchronize the stream before a send or receive");
  if (on_gpu) py::module_::import("fairway.cuda").attr("_synchronize")(gpu);
  read_options(out, options, false, -1);
}

// Where an array of a message lies in its region.
Slice place_of(const Local& local) {
  const Runs runs = runs_of(local.shape);
  if (!runs.outer.empty())
    raise(ErrorCode::invalid_argument,
          "send and receive move contiguous arrays; this one is a strided view: give a list of its contiguous parts");
  return {local.registration->region().id, runs.offset, runs.run};
}

// A message whose bytes are those of several arrays, in their order. `given`: kept from the caller's changes.
void make_pieces(PyRequest& out, Session& session, const py::tuple& given, const py::kwargs& options) {
  constexpr std::size_t kMost = 1024;  // Request::layout
  const std::size_t count = given.size();
  if (count == 0 || count > kMost)
    raise(ErrorCode::invalid_argument,
          "local is a list of " + std::to_string(count) + " arrays: a message has 1 to 1,024 of them");
  if (count > 1 && !out.request.peer)
    raise(ErrorCode::invalid_argument, "a receive of any peer takes one array: name the peer, or receive into one");
  auto extents = std::make_shared<Extents>();
  extents->list.reserve(count);
  bool on_gpu = false;
  int gpu = -1;
  for (const py::handle item : given) {
    Local local = local_of(session, item, out.request.operation == Operation::receive);
    if (count > 1 && local.on_gpu)
      raise(ErrorCode::unsupported, "the arrays of a list are of host memory: send and receive a GPU's by itself");
    on_gpu = local.on_gpu;
    gpu = local.gpu;
    extents->list.push_back({place_of(local), {}});
    pin(out, local, item);
  }
  if (count == 1)
    out.request.layout = extents->list.front();
  else
    out.request.layout = std::span<const Extent>(extents->list);
  out.pins.holds.push_back(std::move(extents));
  read_message_options(out, options, on_gpu, gpu);
}

}  // namespace

PyRequest make_move(Operation operation, py::handle given_local, py::handle given_remote, const py::kwargs& options) {
  const bool written = operation == Operation::read;
  Remote remote = remote_of(given_remote);
  Session& session = *remote.imported->session;
  PyRequest out = begin(operation, remote.imported->tracker, remote.imported->region.peer);
  if (given_local.is_none() || (remote.shape.total_bytes() == 0 && is_nothing(given_local))) {
    make_nothing(out, session, remote);
    read_options(out, options, false, -1);
    if (out.request.options.notify.kind == NotifyKind::none)
      raise(ErrorCode::invalid_argument, "there are no bytes to move, and no notify=");
    out.pins.imported.push_back(std::move(remote.imported));
    return out;
  }
  Local local = local_of(session, given_local, written);
  check_kinds(local, remote);
  auto lowered = lower(local.registration->region().id, local.shape, remote.imported->region.id, remote.shape, written);
  if (const auto* why = std::get_if<std::string>(&lowered)) raise(ErrorCode::invalid_argument, *why);
  auto& made = std::get<Lowered>(lowered);
  out.request.layout = made.layout;
  if (!made.local_index.empty()) {
    out.pins.indexes.push_back(std::move(made.local_index));  // a moved vector keeps its place
    out.pins.indexes.push_back(std::move(made.remote_index));
  }
  read_options(out, options, local.on_gpu, local.gpu);
  pin(out, local, given_local);
  out.pins.imported.push_back(std::move(remote.imported));
  return out;
}

PyRequest make_pages(Operation operation, py::handle given_local, py::handle given_remote, py::handle local_index,
                     py::handle remote_index, std::uint64_t page_bytes, std::optional<PageUnit> local_unit,
                     std::optional<PageUnit> remote_unit, const py::kwargs& options) {
  const bool written = operation == Operation::read;
  Remote remote = remote_of(given_remote);
  Local local = local_of(*remote.imported->session, given_local, written);
  const Runs here = runs_of(local.shape);
  const Runs there = runs_of(remote.shape);
  if (!here.outer.empty() || !there.outer.empty())
    raise(ErrorCode::invalid_argument, "pages are of contiguous memory, and one of the sides is a strided view");
  if (here.offset != 0 || there.offset != 0)
    raise(ErrorCode::invalid_argument,
          "pages are counted from the start of a registered region, and one of the sides "
          "starts inside one: register it by itself, or count from the region's start");
  PyRequest out = begin(operation, remote.imported->tracker, remote.imported->region.peer);
  Paged pages{local.registration->region().id,
              remote.imported->region.id,
              page_bytes,
              local_unit.value_or(PageUnit{page_bytes}),
              remote_unit.value_or(PageUnit{page_bytes}),
              {},
              {}};
  const auto& spare = out.tracker->spare_numbers();
  pages.local_index = page_numbers(local_index, spare, out.pins, "local_index");
  pages.remote_index = page_numbers(remote_index, spare, out.pins, "remote_index");
  if (pages.local_index.size() != pages.remote_index.size())
    raise(ErrorCode::invalid_argument, "local_index has " + std::to_string(pages.local_index.size()) +
                                           " pages and remote_index " + std::to_string(pages.remote_index.size()));
  if (pages.local_index.empty()) raise(ErrorCode::invalid_argument, "there are no pages to move");
  PageMarks& marks = out.tracker->page_marks();
  check_pages(pages.local_index, {pages.local_unit, page_bytes, here.run, "local_index"}, written ? &marks : nullptr);
  check_pages(pages.remote_index, {pages.remote_unit, page_bytes, there.run, "remote_index"},
              written ? nullptr : &marks);
  out.request.layout = pages;
  read_options(out, options, local.on_gpu, local.gpu);
  pin(out, local, given_local);
  out.pins.objects.push_back(py::reinterpret_borrow<py::object>(local_index));
  out.pins.objects.push_back(py::reinterpret_borrow<py::object>(remote_index));
  out.pins.imported.push_back(std::move(remote.imported));
  return out;
}

// Rows of (local, offset there, remote, offset there, bytes): the NIXL shape of use, a descriptor for each piece.
PyRequest make_extents(const std::string& operation, const py::sequence& given_locals,
                       const py::sequence& given_remotes, py::handle table, const py::kwargs& options) {
  // An array makes its items anew, and the caller's lists may change meanwhile: these keep each.
  const py::tuple locals(given_locals), remotes(given_remotes);
  const auto kind =
      choice<Operation>(operation, "the operation", {{"write", Operation::write}, {"read", Operation::read}});
  const bool written = kind == Operation::read;
  if (py::len(locals) == 0 || py::len(remotes) == 0)
    raise(ErrorCode::invalid_argument, "there are no local or no remote regions");
  const View rows = view_of(table);
  const bool is_table = rows.shape.counts.size() == 2 && rows.shape.counts[1] == 5 && rows.shape.item_bytes == 8 &&
                        (rows.kind == 'i' || rows.kind == 'u') && runs_of(rows.shape).outer.empty();
  if (!is_table) raise(ErrorCode::invalid_argument, "the table is a contiguous N x 5 array of 64-bit integers");
  std::vector<Remote> far;
  for (const py::handle item : remotes) {
    far.push_back(remote_of(item));
    if (!runs_of(far.back().shape).outer.empty()) raise(ErrorCode::invalid_argument, "a remote side is a strided view");
  }
  PyRequest out = begin(kind, far[0].imported->tracker, far[0].imported->region.peer);
  std::vector<Local> here;
  for (const py::handle item : locals) {
    here.push_back(local_of(*far[0].imported->session, item, written));
    if (!runs_of(here.back().shape).outer.empty()) raise(ErrorCode::invalid_argument, "a local side is a strided view");
  }
  const auto* row = reinterpret_cast<const std::uint64_t*>(rows.address);
  const auto count = static_cast<std::size_t>(rows.shape.counts[0]);
  auto extents = std::make_shared<Extents>();
  extents->list.reserve(count);
  for (std::size_t i = 0; i < count; ++i, row += 5) {
    if (row[0] >= here.size() || row[2] >= far.size())
      raise(ErrorCode::out_of_range, "row " + std::to_string(i) + " names a region that is not in the lists");
    const Local& from = here[row[0]];
    const Remote& to = far[row[2]];
    if (row[1] + row[4] < row[4] || row[1] + row[4] > from.shape.total_bytes() || row[3] + row[4] < row[4] ||
        row[3] + row[4] > to.shape.total_bytes())
      raise(ErrorCode::out_of_range, "row " + std::to_string(i) + " reaches beyond the end of its region");
    extents->list.push_back({{from.registration->region().id, from.shape.offset + row[1], row[4]},
                             {to.imported->region.id, to.shape.offset + row[3]}});
  }
  if (count == 1)
    out.request.layout = extents->list.front();  // the short path takes it, if it is small
  else
    out.request.layout = std::span<const Extent>(extents->list);
  out.pins.holds.push_back(std::move(extents));
  read_options(out, options, here[0].on_gpu, here[0].gpu);
  for (std::size_t i = 0; i < here.size(); ++i) pin(out, here[i], locals[i]);
  for (Remote& remote : far) out.pins.imported.push_back(std::move(remote.imported));
  return out;
}

PyRequest make_message(Operation operation, const PyPeer& peer, std::uint64_t tag, py::handle given_local,
                       const py::kwargs& options) {
  PyRequest out = begin(operation, peer.tracker, peer.id);
  out.request.tag = tag;
  if (PyList_Check(given_local.ptr()) != 0 || PyTuple_Check(given_local.ptr()) != 0) {
    make_pieces(out, *peer.session, py::tuple(py::reinterpret_borrow<py::object>(given_local)), options);
    return out;
  }
  Local local = local_of(*peer.session, given_local, operation == Operation::receive);
  out.request.layout = Extent{place_of(local), {}};
  read_message_options(out, options, local.on_gpu, local.gpu);
  pin(out, local, given_local);
  return out;
}

PyRequest make_atomic(Operation operation, py::handle target, std::uint64_t operand, std::uint64_t expected,
                      const py::kwargs& options) {
  Remote remote = eight_bytes_of(target);
  PyRequest out = begin(operation, remote.imported->tracker, remote.imported->region.peer);
  out.request.target = {remote.imported->region.id, remote.shape.offset};
  out.request.operand = operand;
  out.request.expected = expected;
  read_options(out, options, false, -1);
  out.pins.imported.push_back(std::move(remote.imported));
  return out;
}

void check_callable(py::handle callback) {
  if (PyCallable_Check(callback.ptr()) == 0)
    raise(ErrorCode::invalid_argument,
          std::string("a callback is called with the Transfer; ") + Py_TYPE(callback.ptr())->tp_name + " cannot be");
}

py::object submit_one(PyRequest request) {
  PyRequest* const one = &request;
  const auto tracker = request.tracker;
  return tracker->submit({&one, 1}, {});
}

void bind_requests(py::module_& module) {
  const auto request = [](const char* text) { return text; };
  py::class_<PyRequest>(module, "Request",
                        "A transfer to start with Engine.submit, together with others and as often as wanted.")
      .def_static(
          "write",
          [](py::handle local, py::handle remote, const py::kwargs& o) {
            return make_move(Operation::write, local, remote, o);
          },
          py::arg("local"), py::arg("remote"),
          request("write(local, remote, **options) -> Request\n\nAs Engine.write, to be submitted."))
      .def_static(
          "read",
          [](py::handle local, py::handle remote, const py::kwargs& o) {
            return make_move(Operation::read, local, remote, o);
          },
          py::arg("local"), py::arg("remote"),
          request("read(local, remote, **options) -> Request\n\nAs Engine.read, to be submitted."))
      .def_static(
          "fetch_add",
          [](py::handle target, Whole<std::uint64_t, "addend"> addend, const py::kwargs& o) {
            return make_atomic(Operation::fetch_add, target, addend, 0, o);
          },
          py::arg("target"), py::arg("addend"),
          request("fetch_add(target, addend, **options) -> Request\n\nAs Engine.fetch_add, to be submitted."))
      .def_static(
          "extents", &make_extents, py::arg("operation"), py::arg("locals"), py::arg("remotes"), py::arg("table"),
          "extents(operation, locals, remotes, table, **options) -> Request\n\n"
          "A 'write' or 'read' of many pieces between several regions of one peer's, as one transfer.\n\n"
          "table: N x 5 of 64-bit integers: index in `locals`, offset in it, index in `remotes`, offset in it, bytes.")
      .def("__repr__",
           [](const PyRequest& r) {
             static constexpr const char* kNames[] = {"write", "read", "send", "receive", "fetch_add", "compare_swap"};
             static constexpr const char* kLayouts[] = {"one extent", "a list of extents", "strided", "pages"};
             return std::string("<fairway.Request ") + kNames[static_cast<int>(r.request.operation)] + ", " +
                    kLayouts[r.request.layout.index()] + ">";
           })
      .def_property_readonly(
          "layout",
          [](const PyRequest& r) {
            static constexpr const char* kLayouts[] = {"extent", "extents", "strided", "paged"};
            return kLayouts[r.request.layout.index()];
          },
          "how its bytes lie: 'extent', 'extents', 'strided' or 'paged'");
}

}  // namespace fairway::python
