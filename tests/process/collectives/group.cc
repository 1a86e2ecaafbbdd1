#include "process/collectives/group.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/host/choose.h"
#include "support/open_engine.h"

namespace fairway {
namespace {

EngineOptions engine_options(const GroupOptions& options, int rank) {
  EngineOptions made;
  made.name = "rank-" + std::to_string(rank);
  made.transports = options.transports;
  made.progress = options.progress;
  if (options.own_addresses) made.listen = "127.0.0." + std::to_string(rank + 1) + ":0";
  made.peer_timeout = options.peer_timeout;
  if (options.size > 2) made.spin = std::chrono::microseconds(0);  // more ranks than cores
  if (options.change) options.change(made, rank);
  return made;
}

// A communicator is made on its rank's thread.
thread_local int own_host = 0;
void be_on(const GroupOptions& options, int rank) {
  if (options.hosts.empty()) return collectives::other_host.store(nullptr);
  own_host = options.hosts[static_cast<std::size_t>(rank)];
  collectives::other_host.store([](const Engine&) { return static_cast<std::uint64_t>(own_host); });
}

int run_rank(const GroupOptions& options, int rank, const std::string& folder,
             const std::function<int(Engine& engine, Communicator& communicator)>& body) {
  auto engine = open_engine(engine_options(options, rank));
  if (!engine) return std::fprintf(stderr, "%s\n", engine.status().to_string().c_str()), 3;
  const auto addresses = exchange_addresses(folder, rank, options.size, engine->address());
  if (!addresses) return std::fprintf(stderr, "%s\n", addresses.status().to_string().c_str()), 4;
  be_on(options, rank);
  auto communicator = Communicator::create(*engine, rank, *addresses, options.communicator);
  if (!communicator) return std::fprintf(stderr, "%s\n", communicator.status().to_string().c_str()), 5;
  return body(*engine, *communicator);
}

}  // namespace

GroupOptions group_over(int size, const std::string& links) {
  GroupOptions options;
  options.size = size;
  options.transports = {links};
  if (links == "hosts") {
    options.transports = {"shm", "tcp"};
    for (int rank = 0; rank < size; ++rank) options.hosts.push_back(rank / 2);
  }
  return options;
}

void run_group(const GroupOptions& options, const RankBody& body) {
  std::vector<Engine> engines;
  std::vector<std::string> addresses;
  const auto loopback = options.transports.front() == "loopback" ? make_loopback() : nullptr;
  for (int rank = 0; rank < options.size; ++rank) {
    EngineOptions wanted = engine_options(options, rank);
    wanted.loopback = loopback;
    auto engine = open_engine(wanted);
    ASSERT_TRUE(engine) << engine.status().to_string();
    addresses.push_back(engine->address());
    engines.push_back(std::move(*engine));
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.size; ++rank) {
    threads.emplace_back([&, rank] {
      Engine& engine = engines[static_cast<std::size_t>(rank)];
      be_on(options, rank);
      auto communicator = Communicator::create(engine, rank, addresses, options.communicator);
      if (!communicator) {
        ADD_FAILURE() << "rank " << rank << ": " << communicator.status().to_string();
        return;
      }
      body(engine, *communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<RankEnd> run_processes(const GroupOptions& options,
                                   const std::function<int(Engine& engine, Communicator& communicator)>& body) {
  std::string folder = (std::filesystem::temp_directory_path() / "fairway-group-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    ADD_FAILURE() << "no folder for addresses";
    return {};
  }
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < options.size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string said = folder + "/said-" + std::to_string(rank);
      if (std::freopen(said.c_str(), "w", stderr) == nullptr) ::_exit(9);
      const int code = run_rank(options, rank, folder, body);
      (void)std::fflush(nullptr);
      ::_exit(code);
    }
    ranks.push_back(child);
  }
  // A rank that stopped itself stays so until the others have ended.
  std::vector<RankEnd> ends(ranks.size());
  std::vector<std::size_t> order;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    siginfo_t seen = {};
    (void)::waitid(P_PID, static_cast<id_t>(ranks[rank]), &seen, WEXITED | WSTOPPED | WNOWAIT);
    if (seen.si_code == CLD_STOPPED)
      order.push_back(rank);
    else
      order.insert(order.begin(), rank);
  }
  for (const std::size_t rank : order) {
    int status = 0;
    siginfo_t seen = {};
    (void)::waitid(P_PID, static_cast<id_t>(ranks[rank]), &seen, WEXITED | WSTOPPED | WNOWAIT);
    if (seen.si_code == CLD_STOPPED) ::kill(ranks[rank], SIGKILL);
    (void)::waitpid(ranks[rank], &status, 0);
    RankEnd& end = ends[rank];
    end.well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (std::FILE* said = std::fopen((folder + "/said-" + std::to_string(rank)).c_str(), "r")) {
      char text[4096];
      end.said.assign(text, std::fread(text, 1, sizeof text, said));
      (void)std::fclose(said);
    }
    end.said += WIFEXITED(status) ? "it exited with " + std::to_string(WEXITSTATUS(status)) : "a signal killed it";
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return ends;
}

}  // namespace fairway
