#include "group.h"
#include "memory.h"
#include "module.h"
#include "side_stream.h"

// What Python sees of communicators: numbers and addresses. fairway/communicator.py makes them of arrays.
namespace fairway::python {
namespace {

struct PyOperation {
  std::shared_ptr<Group> group;
  std::shared_ptr<Job> job;
};

constexpr std::pair<const char*, CollectiveKind> kKinds[] = {
    {"barrier", CollectiveKind::barrier},       {"all_reduce", CollectiveKind::all_reduce},
    {"reduce", CollectiveKind::reduce},         {"broadcast", CollectiveKind::broadcast},
    {"all_gather", CollectiveKind::all_gather}, {"gather", CollectiveKind::gather},
    {"scatter", CollectiveKind::scatter},       {"reduce_scatter", CollectiveKind::reduce_scatter},
    {"all_to_all", CollectiveKind::all_to_all}, {"all_to_allv", CollectiveKind::all_to_allv},
};
constexpr std::pair<const char*, DataType> kTypes[] = {
    {"int8", DataType::i8},
    {"uint8", DataType::u8},
    {"int16", DataType::i16},
    {"uint16", DataType::u16},
    {"int32", DataType::i32},
    {"uint32", DataType::u32},
    {"int64", DataType::i64},
    {"uint64", DataType::u64},
    {"float16", DataType::f16},
    {"bfloat16", DataType::bf16},
    {"float32", DataType::f32},
    {"float64", DataType::f64},
    {"float8_e4m3fn", DataType::f8e4m3},
    {"float8_e5m2", DataType::f8e5m2},
};
constexpr std::pair<const char*, Reduction> kReductions[] = {
    {"sum", Reduction::sum}, {"product", Reduction::product}, {"min", Reduction::min},
    {"max", Reduction::max}, {"average", Reduction::average}, {"premul_sum", Reduction::premul_sum},
};
constexpr std::pair<const char*, Algorithm> kAlgorithms[] = {
    {"automatic", Algorithm::automatic},
    {"one_shot", Algorithm::one_shot},
    {"direct", Algorithm::direct},
    {"recursive_doubling", Algorithm::recursive_doubling},
    {"ring", Algorithm::ring},
    {"binomial", Algorithm::binomial},
    {"chain", Algorithm::chain},
    {"bruck", Algorithm::bruck},
    {"dissemination", Algorithm::dissemination},
    {"hierarchical", Algorithm::hierarchical},
};

constexpr std::pair<const char*, NcclUse> kNcclUses[] = {
    {"measured", NcclUse::measured}, {"never", NcclUse::never}, {"always", NcclUse::always}};

// The name of an array's elements as kTypes has it, and how many of those an element is; no name: bytes of no kind.
std::pair<std::string, std::uint64_t> elements_of(const View& view) {
  const std::uint64_t bytes = view.shape.item_bytes;
  const std::string bits = std::to_string(bytes * 8);
  switch (view.kind) {
    case 0: return {bytes == 1 ? "uint8" : "", 1};
    case 'b': return {bytes == 1 ? "bool" : "", 1};
    case 'i': return {"int" + bits, 1};
    case 'u': return {"uint" + bits, 1};
    case 'f': return {bytes <= 8 ? "float" + bits : "", 1};
    case 'E': return {bytes == 2 ? "bfloat16" : "", 1};
    case 'c': return {bytes <= 16 ? "complex" + bits : "", 2};
    default: return {"", 1};
  }
}

struct PyView {
  View view;
};

// (address, bytes, name of the elements' type or '', bytes of one, shape, what keeps the memory)
py::tuple look_at(py::handle object, const std::string& name, bool written, bool for_stream) {
  View view = view_of(object, true);
  if (view.on_gpu && !for_stream)
    raise(ErrorCode::unsupported,
          name +
              " is the memory of a GPU: give stream=, once all ranks have called use_gpu(), or copy it to the host "
              "first, and back");
  if (!runs_of(view.shape).outer.empty() && view.shape.total_bytes() != 0)
    raise(ErrorCode::invalid_argument, name +
                                           " is not contiguous: pass a copy that is (numpy.ascontiguousarray, "
                                           "tensor.contiguous())");
  if (written && view.read_only) raise(ErrorCode::access_denied, name + " is read-only");
  const auto elements = elements_of(view);
  const auto counts = view.shape.counts;
  const std::uint64_t bytes = view.shape.total_bytes(), item = view.shape.item_bytes;
  const std::uintptr_t address = view.address;
  return py::make_tuple(address, bytes, elements.first, item, counts, PyView{std::move(view)});
}

using Counts = std::vector<std::size_t>;

std::shared_ptr<PyCall> call_of(const std::string& kind, std::uintptr_t input, std::uintptr_t output, std::size_t count,
                                const std::string& type, const std::string& op, double factor, int root,
                                const std::string& algorithm, std::optional<double> timeout, bool reproducible,
                                bool local_completion, Counts send_counts, Counts send_offsets, Counts receive_counts,
                                Counts receive_offsets) {
  auto made = std::make_shared<PyCall>();
  Collective& call = made->call;
  call.kind = choice<CollectiveKind>(kind, "kind", kKinds);
  call.input = reinterpret_cast<const void*>(input);
  call.output = reinterpret_cast<void*>(output);
  call.count = count;
  call.type = choice<DataType>(type, "type", kTypes);
  call.reduction = choice<Reduction>(op, "op", kReductions);
  call.factor = factor;
  call.root = root;
  call.algorithm = choice<Algorithm>(algorithm, "algorithm", kAlgorithms);
  call.timeout = limit_of(timeout);
  call.reproducible = reproducible;
  call.local_completion = local_completion;
  made->blocks = {std::move(send_counts), std::move(send_offsets), std::move(receive_counts),
                  std::move(receive_offsets)};
  call.send = {made->blocks[0], made->blocks[1]};
  call.receive = {made->blocks[2], made->blocks[3]};
  return made;
}

// What `call` of a communicator gives, in its turn. It may go on after Ctrl-C, so it owns what it writes.
template <class Call>
std::string text_in_turn(Group& group, bool is_short, Call call) {
  const auto text = std::make_shared<std::string>();
  group.in_turn(
      [=](Communicator& c) {
        Result<std::string> made = call(c);
        if (made) *text = std::move(*made);
        return made.status();
      },
      is_short);
  return *text;
}

// What `of` borrows stays until it has its turn.
void stream_run(Group& group, const std::shared_ptr<PyCall>& of, std::uintptr_t stream) {
  group.in_turn([=](Communicator& c) { return c.stream_run(of->call, reinterpret_cast<void*>(stream)); }, true);
}

void stream_messages(Group& group, const MessageTuples& messages, std::optional<double> timeout,
                     std::uintptr_t stream) {
  const auto limit = limit_of(timeout);
  group.in_turn([=, all = messages_of(messages)](
                    Communicator& c) { return c.stream_messages(all, reinterpret_cast<void*>(stream), limit); },
                true);
}

// Who would do it, and why. `captured`: in a graph.
std::string explain_stream(Group& group, const std::shared_ptr<PyCall>& of, bool captured) {
  return text_in_turn(group, true,
                      [=](Communicator& c) { return Result<std::string>(c.explain_stream(of->call, captured)); });
}

std::string measure_gpu(Group& group, Whole<std::size_t, "most_bytes"> most_bytes, const py::object& compare) {
  const bool compares = value_of<bool>(compare, "compare");
  return text_in_turn(group, false, [=](Communicator& c) { return c.measure_gpu(most_bytes, compares); });
}

std::string measure_hosts(Group& group, Whole<std::size_t, "most_bytes"> most_bytes, const py::object& compare) {
  const bool compares = value_of<bool>(compare, "compare");
  return text_in_turn(group, false, [=](Communicator& c) { return c.measure(most_bytes, compares); });
}

// `of` stays until it has its turn, as it has the blocks.
std::string explain_call(Group& group, const std::shared_ptr<PyCall>& of) {
  return text_in_turn(group, true, [=](Communicator& c) { return Result<std::string>(c.explain(of->call)); });
}

GpuOptions gpu_options(const py::object& nccl, const py::object& guarded, const py::object& nccl_library,
                       const py::object& table, Whole<std::uint64_t, "windows_from"> windows_from,
                       Whole<std::uint64_t, "meet_from"> meet_from, const py::object& messages,
                       const py::object& graphs_in_turn) {
  GpuOptions options;
  options.nccl = choice<NcclUse>(value_of<std::string>(nccl, "nccl"), "nccl", kNcclUses);
  options.guarded = value_of<bool>(guarded, "guarded");
  options.nccl_library = value_of<std::string>(nccl_library, "nccl_library");
  options.table = value_of<std::string>(table, "table");
  options.windows_from = windows_from;
  options.meet_from = meet_from;
  options.messages = value_of<bool>(messages, "messages");
  options.graphs_in_turn = value_of<bool>(graphs_in_turn, "graphs_in_turn");
  return options;
}

void use_gpu(Group& group, int gpu, const GpuOptions& options) {
  group.in_turn([=](Communicator& c) { return c.use_gpu(gpu, options); }, false);
  group.watch_streams();
}

// `keep` owns the memory until it has ended, as the job has the blocks.
PyOperation start(const std::shared_ptr<Group>& group, const std::shared_ptr<PyCall>& call, py::object keep,
                  py::object result, bool soon) {
  auto job = std::make_shared<Job>();
  job->call = call->call;
  job->borrowed = call;
  job->keep = std::move(keep);
  job->result = std::move(result);
  group->start(job, soon);
  return {group, std::move(job)};
}

// A group of calls, as one operation.
PyOperation run_all(const std::shared_ptr<Group>& group, const std::vector<std::shared_ptr<PyCall>>& calls,
                    py::object keep, py::object result, bool soon) {
  auto job = std::make_shared<Job>();
  job->whole = [calls, of = job.get()](Communicator& c) {
    std::vector<Collective> all;
    for (const auto& one : calls) all.push_back(one->call);
    Status status = c.run_all(all);
    if (!status) of->failure = c.failure();
    return status;
  };
  job->keep = std::move(keep);
  job->result = std::move(result);
  group->start(job, soon);
  return {group, std::move(job)};
}

py::object wait(const PyOperation& operation, Seconds timeout) {
  check(operation.group->wait(operation.job, Deadline(timeout)));
  return result_of(*operation.job);
}

CommunicatorOptions options_of(const std::string& name, double timeout, std::uint32_t slot_bytes,
                               std::uint32_t first_immediate) {
  CommunicatorOptions options;
  options.name = name;
  options.timeout = timeout_of(timeout);
  options.slot_bytes = slot_bytes;
  options.first_immediate = first_immediate;
  return options;
}

std::shared_ptr<Group> open(PyEngine& engine, int rank, const std::vector<std::string>& addresses,
                            const std::string& name, double timeout, std::uint32_t slot_bytes,
                            std::uint32_t first_immediate) {
  return Group::create(engine.session, rank, addresses, options_of(name, timeout, slot_bytes, first_immediate));
}

std::shared_ptr<Group> grow(Group& group, const std::vector<std::string>& added, const std::string& name,
                            double timeout, std::uint32_t slot_bytes, std::uint32_t first_immediate) {
  const CommunicatorOptions options = options_of(name, timeout, slot_bytes, first_immediate);
  return group.regroup([=](Communicator& c) { return c.grow(added, options); });
}

std::vector<const char*> pointers_to(const std::vector<std::string>& lines) {
  std::vector<const char*> pointers;
  for (const std::string& line : lines) pointers.push_back(line.c_str());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

void bind_collectives(py::module_& module) {
  py::class_<PyView>(module, "_View").def_property_readonly("on_gpu", [](const PyView& v) { return v.view.on_gpu; });
  py::class_<Group, std::shared_ptr<Group>>(module, "_Group")
      .def(py::init(&open), py::arg("engine"), py::arg("rank"), py::arg("addresses"), py::arg("name"),
           py::arg("timeout"), py::arg("slot_bytes"), py::arg("first_immediate"))
      .def_property_readonly("rank", &Group::rank)
      .def_property_readonly("size", &Group::size)
      .def_property_readonly("closed", &Group::closed)
      .def_property_readonly("busy", &Group::busy)
      .def_property_readonly("failure",
                             [](Group& g) -> py::object {
                               const CollectiveFailure why = g.failure();
                               if (why.status) return py::none();
                               try {
                                 raise_failed(why.status, why);
                               } catch (py::error_already_set& error) {
                                 return error.value();
                               }
                             })
      .def("split",
           [](Group& g, int color, int key) { return g.regroup([=](Communicator& c) { return c.split(color, key); }); })
      .def("shrink",
           [](Group& g, const std::vector<int>& without) {
             return g.regroup([=](Communicator& c) { return c.shrink(without); });
           })
      .def("grow", &grow)
      .def("use_gpu", &use_gpu)
      .def("measure", &measure_hosts)
      .def("explain", &explain_call)
      .def("measure_gpu", &measure_gpu)
      .def("explain_stream", &explain_stream)
      .def("stream_run", &stream_run)
      .def("stream_messages", &stream_messages)
      .def("stream_status", [](Group& g) { g.in_turn([](Communicator& c) { return c.stream_status(); }, true); })
      .def("register_window", &Group::register_window)
      .def("deregister_window", &Group::deregister_window)
      .def_property_readonly("addresses", &Group::addresses)
      .def("abort", &Group::abort)
      .def("close", &Group::close)
      .def("start", &start)
      .def("run_all", &run_all);
  py::class_<PyCall, std::shared_ptr<PyCall>>(module, "_Call").def(py::init(&call_of));
  bind_side_streams(module);
  py::class_<GpuOptions>(module, "_GpuOptions").def(py::init(&gpu_options));
  module.def("_look_at", &look_at);
  module.def("_detect_ranks", [](const std::vector<std::string>& environment) {
    const Ranks found = take(detect_ranks(pointers_to(environment).data()));
    return py::make_tuple(found.rank, found.size, found.launcher,
                          found.local_rank < 0 ? py::object(py::none()) : py::object(py::int_(found.local_rank)),
                          found.one_host, found.job, found.master);
  });
  module.def("_join", [](const std::string& name, double timeout, const std::vector<std::string>& environment,
                         const py::dict& options) {
    JobOptions job;
    job.communicator.name = name;
    job.communicator.timeout = timeout_of(timeout);
    job.engine = engine_options(options);
    const auto lines = pointers_to(environment);
    job.environment = lines.data();
    return Group::join(job);
  });

  py::class_<PyOperation>(module, "Operation",
                          "A collective that was started. It ends exactly once, in the order of the starts.\n\n"
                          "wait() or `await` gives the array with the result or raises what went wrong. It makes\n"
                          "progress by itself, keeps the arrays until it has ended, and may be dropped.")
      .def("wait", &wait, py::arg("timeout") = py::none(),
           "wait(timeout=None) -> array\n\n"
           "Waits `timeout` seconds (None: until its own deadline) without the interpreter's lock; Ctrl-C "
           "interrupts.\n\n"
           "Gives the array with the result. Raises TimedOut (the operation goes on) or the operation's own error,\n"
           "with `rank`, `operation` and `phase`.")
      .def_property_readonly(
          "done", [](const PyOperation& o) { return o.group->is_done(*o.job); }, "whether it has ended")
      .def(
          "result",
          [](const PyOperation& o) {
            if (!o.group->is_done(*o.job)) raise(ErrorCode::timed_out, "the operation has not ended");
            return result_of(*o.job);
          },
          "result() -> array\n\nAs wait(), of an operation that is done.")
      .def(
          "add_done_callback",
          [](const PyOperation& o, py::object call) {
            if (PyCallable_Check(call.ptr()) == 0)
              raise(ErrorCode::invalid_argument,
                    "a callback can be called; this is " + py::cast<std::string>(py::repr(call)));
            o.group->add_callback(o.job, py::cpp_function([o, call = std::move(call)] { call(o); }));
          },
          py::arg("callback"),
          "add_done_callback(callback)\n\n"
          "Calls callback(operation) once it has ended: on the communicator's thread, on one that waits, or at once.")
      .def("__await__",
           [](const py::object& self) { return py::module_::import("fairway.aio").attr("_await_operation")(self); })
      .def("__repr__", [](const PyOperation& o) {
        return std::string("<fairway.Operation, ") + (!o.group->is_done(*o.job) ? "under way>"
                                                      : o.job->status           ? "ok>"
                                                                                : o.job->status.to_string() + ">");
      });
}

}  // namespace fairway::python
