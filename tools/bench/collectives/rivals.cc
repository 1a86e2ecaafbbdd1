#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "collectives.h"
#include "other_program.h"
#include "programs.h"

namespace fairway::tool::bench {
namespace {

constexpr const char* kPython = "/usr/bin/python3";  // Debian's, which has Debian's modules

// A folder of its own, removed with all it holds. A resource.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "fairway-rival-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The programs of one kind of MPI, as Debian names them.
struct Mpi {
  const char *compiler, *runner, *packages;
};
Mpi mpi_of(const std::string& tool) {
  if (tool == "mpich") return {"mpicc.mpich", "mpiexec.mpich", "mpich and libmpich-dev"};
  return {"mpicc.openmpi", "mpirun.openmpi", "openmpi-bin and libopenmpi-dev"};
}

CollectiveRival rival_of(const std::string& tool) {
  if (tool == "gloo") {
    const auto ran = run_program({kPython, "-c", "import torch.distributed as d; assert d.is_gloo_available()"}, 120);
    return {tool, "python3-torch", ran && ran->well ? "" : "not installed"};
  }
  const Mpi mpi = mpi_of(tool);
  return {tool, mpi.packages, on_path(mpi.compiler) && on_path(mpi.runner) ? "" : "not installed"};
}

Result<std::string> compiled(const std::string& tool, const Folder& folder) {
  std::ofstream(folder.file("rival.c")) << kMpiProgram;
  const std::string program = folder.file("rival");
  const auto made = run_program({mpi_of(tool).compiler, "-O2", "-o", program, folder.file("rival.c")}, 120);
  if (!made) return made.status();
  if (!made->well) return Status(ErrorCode::unsupported, "cannot compile its program: " + made->err.substr(0, 300));
  return program;
}

}  // namespace

std::vector<CollectiveRival> collective_rivals(const std::vector<std::string>& wanted) {
  std::vector<std::string> tools;
  for (const std::string& each : wanted) {
    const std::vector<std::string> meant =
        each == "mpi" ? std::vector<std::string>{"openmpi", "mpich"} : std::vector<std::string>{each};
    for (const std::string& tool : meant)
      if (std::ranges::find(tools, tool) == tools.end()) tools.push_back(tool);
  }
  std::vector<CollectiveRival> all;
  for (const std::string& tool : tools) all.push_back(rival_of(tool));
  return all;
}

// No program sends messages or uneven blocks, multiplies, or has averages and floats that are shorter than f32. Gloo
// has no reduce_scatter here, and PyTorch no unsigned types but u8.
bool rival_does(const CollectiveRival& rival, const CollectiveWork& work) {
  const bool is_short = work.type == DataType::f16 || work.type == DataType::bf16 || work.type == DataType::f8e4m3 ||
                        work.type == DataType::f8e5m2;
  if (work.messages || work.kind == CollectiveKind::all_to_allv || is_short) return false;
  if (work.combines() && (work.reduction == Reduction::average || work.reduction == Reduction::premul_sum))
    return false;
  if (rival.tool != "gloo") return true;
  const bool is_unsigned = work.type == DataType::u16 || work.type == DataType::u32 || work.type == DataType::u64;
  return work.kind != CollectiveKind::reduce_scatter && !is_unsigned;
}

Result<std::vector<double>> run_collective_rival(const CollectiveRival& rival, const std::vector<CollectiveWork>& works,
                                                 double seconds, const RankNetwork* network) {
  const CollectiveWork& first = works.front();
  std::vector<std::string> arguments{std::string(first.operation()), std::string(to_string(first.type)),
                                     std::string(to_string(first.reduction)), fmt::format("{}", first.ranks),
                                     fmt::format("{}", seconds)};
  for (const CollectiveWork& work : works) arguments.push_back(fmt::format("{}", work.bytes));
  const Folder folder;
  std::vector<std::string> words;
  if (rival.tool == "gloo") {
    std::ofstream(folder.file("rival.py")) << kGlooProgram;
    words = {kPython, folder.file("rival.py")};
    if (network != nullptr)
      words.insert(words.begin(),
                   {"env", "RIVAL_NAMESPACES=" + network->files(), "GLOO_SOCKET_IFNAME=" + network->interface()});
  } else {
    const auto program = compiled(rival.tool, folder);
    if (!program) return program.status().with_context(rival.tool);
    words = {mpi_of(rival.tool).runner, "-n", fmt::format("{}", first.ranks)};
    if (rival.tool == "openmpi") words.insert(words.begin() + 1, {"--allow-run-as-root", "--oversubscribe"});
    words.push_back(*program);
  }
  words.insert(words.end(), arguments.begin(), arguments.end());
  const int patience = 120 + static_cast<int>(seconds * 10 * static_cast<double>(works.size()));
  const auto ran = run_program(words, patience);
  if (!ran) return ran.status().with_context(rival.tool);
  std::vector<double> times;
  std::istringstream lines(ran->out);
  std::uint64_t bytes = 0;
  for (double us = 0; times.size() < works.size() && lines >> bytes >> us;)
    if (bytes == works[times.size()].bytes) times.push_back(us);
  if (ran->well && times.size() == works.size()) return times;
  const std::string& said = ran->err;
  return Status(ErrorCode::unsupported, fmt::format("{} reported no figure: {}", rival.tool,
                                                    said.substr(said.size() > 300 ? said.size() - 300 : 0)));
}

}  // namespace fairway::tool::bench
