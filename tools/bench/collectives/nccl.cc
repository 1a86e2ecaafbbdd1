#include "nccl.h"

#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "collectives/nccl/library.h"

namespace fairway::tool::bench {
namespace {

namespace nccl = collectives::nccl;

constexpr const char* kVariable = "FAIRWAY_NCCL_LIBRARY";
constexpr const char* kOfTheLoader = "libnccl.so.2";

Result<std::shared_ptr<const nccl::Library>> open_library(const std::string& named) {
  const bool is_set = !named.empty() || std::getenv(kVariable) != nullptr;
  auto library = nccl::Library::open(is_set ? named : kOfTheLoader);
  if (library) return library;
  return Status(ErrorCode::unsupported,
                fmt::format("--beside nccl: {}; name its file by --nccl-library or {} (Python's package nvidia-nccl "
                            "has one), or leave out --beside nccl",
                            library.status().message(), kVariable));
}

nccl::Member member_of(void* comm, int rank, int size) {
  return {static_cast<nccl::Comm>(comm), rank, size};
}

}  // namespace

Result<std::string> nccl_version(const std::string& named) {
  const auto library = open_library(named);
  return library ? (*library)->version_text() : Result<std::string>(library.status());
}

bool nccl_does(const CollectiveWork& work) {
  if (work.messages || work.kind == CollectiveKind::all_to_allv) return true;
  Collective call{.kind = work.kind, .count = work.count(), .type = work.type, .reduction = work.reduction};
  const std::byte here{};
  call.input = &here;
  return nccl::can(call);
}

Result<std::unique_ptr<NcclRank>> NcclRank::open(Communicator& world, const std::string& named) {
  auto library = open_library(named);
  if (!library) return library.status();
  const nccl::Library& n = **library;
  nccl::UniqueId id = {};
  if (world.rank() == 0)
    if (Status status = n.check(n->ncclGetUniqueId(&id), "making an id"); !status) return status;
  Status status = world.run({.kind = CollectiveKind::broadcast, .input = &id, .output = &id, .count = sizeof id});
  if (!status) return status;
  std::unique_ptr<NcclRank> made(new NcclRank(*library, world.rank(), world.size()));
  nccl::Config config;  // NCCL's own defaults
  nccl::Comm comm = nullptr;
  status = n.check(n->ncclCommInitRankConfig(&comm, world.size(), id, world.rank(), &config), "making a communicator");
  if (!status) return status;
  made->comm_ = comm;
  return made;
}

NcclRank::~NcclRank() {
  if (comm_ != nullptr) (*library_)->ncclCommDestroy(static_cast<nccl::Comm>(comm_));
}

Status NcclRank::enqueue(const Collective& call, void* stream) {
  return library_->check(nccl::enqueue(*library_, call, member_of(comm_, rank_, size_), stream),
                         std::string(to_string(call.kind)));
}

Status NcclRank::enqueue(std::span<const StreamMessage> group, void* stream) {
  return library_->check(nccl::enqueue(*library_, group, member_of(comm_, rank_, size_), stream), "messages");
}

}  // namespace fairway::tool::bench
