#include "fabric.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/paths/slots.h"
#include "bench/pattern.h"
#include "sys/libfabric.h"

// Writes and reads complete when the bytes are in the target's memory (FI_DELIVERY_COMPLETE), as ours do; other
// operations are messages there and back.
namespace fairway::tool::bench {
namespace {

constexpr std::size_t kWindow = 64;  // operations in flight

struct Shared {                        // between the two processes
  std::atomic<std::uint64_t> over{0};  // batches that the measuring process has finished
};
struct Job {
  std::uint64_t operation = 0, size = 0, rounds = 0, places = 1, pages = 1;
};
struct FabricAddress {
  std::uint64_t size = 0;
  std::array<char, 256> name{};
  std::uint64_t base = 0, key = 0;
};

// One endpoint and one memory. Closed only by the end of the process.
class End {
 public:
  bool open(const std::string& provider, std::byte* memory, std::uint64_t size) {
    auto library = sys::Libfabric::open();
    if (!library) return false;
    fi_info* hints = (*library)->dupinfo(nullptr);
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = ::strdup(provider.c_str());
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    fi_info* info = nullptr;
    if ((*library)->getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), nullptr, nullptr, 0, hints, &info) != 0)
      return false;
    for (fi_info* each = info; each != nullptr; each = each->next)  // as we do for a peer of this host
      if (std::strcmp(each->domain_attr->name, "lo") == 0 && each->addr_format == FI_SOCKADDR_IN) info = each;
    fid_fabric* fabric = nullptr;
    fid_av* addresses = nullptr;
    fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_DATA;
    queue.size = 4 * kWindow;
    fi_av_attr table{};
    table.type = info->domain_attr->av_type;
    table.count = 1;
    if ((*library)->fabric(info->fabric_attr, &fabric, nullptr) != 0 ||
        ::fi_domain(fabric, info, &domain_, nullptr) != 0 || ::fi_cq_open(domain_, &queue, &queue_, nullptr) != 0 ||
        ::fi_av_open(domain_, &table, &addresses, nullptr) != 0 || ::fi_endpoint(domain_, info, &end_, nullptr) != 0 ||
        ::fi_ep_bind(end_, &addresses->fid, 0) != 0 || ::fi_ep_bind(end_, &queue_->fid, FI_TRANSMIT | FI_RECV) != 0 ||
        ::fi_enable(end_) != 0)
      return false;
    addresses_ = addresses;
    memory_ = memory;
    if (::fi_mr_reg(domain_, memory, size, FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
                    1, 0, &region_, nullptr) != 0)
      return false;
    own_.size = own_.name.size();
    if (::fi_getname(&end_->fid, own_.name.data(), &own_.size) != 0) return false;
    own_.base = (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0 ? reinterpret_cast<std::uintptr_t>(memory) : 0;
    own_.key = ::fi_mr_key(region_);
    return true;
  }
  [[nodiscard]] const FabricAddress& own() const { return own_; }
  bool meet(const FabricAddress& theirs) {
    theirs_ = theirs;
    return ::fi_av_insert(addresses_, theirs.name.data(), 1, &peer_, 0, nullptr) == 1;
  }

  // Waits for a free slot first. False: the endpoint failed.
  bool move(bool read, std::uint64_t at, std::uint64_t size) {
    while (free_.none_left())
      if (!progress()) return false;
    fi_context2* const context = &contexts_[free_.take()];
    iovec place{memory_ + at, size};
    void* descriptor = ::fi_mr_desc(region_);
    fi_rma_iov there{theirs_.base + at, size, theirs_.key};
    fi_msg_rma message{&place, &descriptor, 1, peer_, &there, 1, context, 0};
    for (;;) {
      const ssize_t result = read ? ::fi_readmsg(end_, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION)
                                  : ::fi_writemsg(end_, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION);
      if (result == 0) break;
      if (result != -FI_EAGAIN || !progress()) return false;
    }
    ++sent_;
    return true;
  }
  bool send(std::uint64_t at, std::uint64_t size) {
    while (free_.none_left())
      if (!progress()) return false;
    fi_context2* const context = &contexts_[free_.take()];
    ssize_t result = 0;
    while ((result = ::fi_send(end_, memory_ + at, size, ::fi_mr_desc(region_), peer_, context)) == -FI_EAGAIN)
      if (!progress()) return false;
    ++sent_;
    return result == 0;
  }
  bool receive(std::uint64_t at, std::uint64_t size) {
    ssize_t result = 0;
    while ((result = ::fi_recv(end_, memory_ + at, size, ::fi_mr_desc(region_), FI_ADDR_UNSPEC, &receiving_)) ==
           -FI_EAGAIN)
      if (!progress()) return false;
    return result == 0;
  }
  bool at_most(std::uint64_t under_way) {
    while (sent_ - done_ > under_way)
      if (!progress()) return false;
    return true;
  }
  bool until_received(std::uint64_t count) {
    while (received_ < count)
      if (!progress()) return false;
    return true;
  }
  [[nodiscard]] std::uint64_t received() const { return received_; }
  bool progress() {
    std::array<fi_cq_data_entry, 16> some{};
    const ssize_t count = ::fi_cq_read(queue_, some.data(), some.size());
    for (ssize_t i = 0; i < count; ++i) {
      const fi_cq_data_entry& entry = some[static_cast<std::size_t>(i)];
      if ((entry.flags & FI_RECV) != 0) {
        ++received_;
        continue;
      }
      ++done_;
      free_.give(static_cast<std::size_t>(static_cast<fi_context2*>(entry.op_context) - contexts_.data()));
    }
    return count >= 0 || count == -FI_EAGAIN;
  }

 private:
  fid_domain* domain_ = nullptr;
  fid_cq* queue_ = nullptr;
  fid_av* addresses_ = nullptr;
  fid_ep* end_ = nullptr;
  fid_mr* region_ = nullptr;
  std::byte* memory_ = nullptr;
  FabricAddress own_, theirs_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::array<fi_context2, kWindow> contexts_{};
  FreeSlots<kWindow> free_;  // of contexts_: the provider's until their operations complete, in any order
  fi_context2 receiving_{};
  std::uint64_t sent_ = 0, done_ = 0, received_ = 0;
};

bool moves(Operation operation) {
  return operation == Operation::write || operation == Operation::read;
}

class FabricRoof final : public Mover {
 public:
  ~FabricRoof() override {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    for (const int fd : {orders_[1], answers_[0]}) ::close(fd);
  }

  bool open(const std::string& provider, std::uint64_t most) {
    const auto map = [](std::uint64_t size, int flags) {
      return ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
    };
    void* shared = map(sizeof(Shared), MAP_SHARED);
    void* memory = map(most, MAP_PRIVATE);
    if (shared == MAP_FAILED || memory == MAP_FAILED || ::pipe(orders_) != 0 || ::pipe(answers_) != 0) return false;
    shared_ = new (shared) Shared;
    memory_ = static_cast<std::byte*>(memory);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::memset(memory_, 1, most);
      help(provider, most);
    }
    ::close(orders_[0]);
    ::close(answers_[1]);
    std::memset(memory_, 1, most);
    FabricAddress theirs;
    return pid_ > 0 && end_.open(provider, memory_, most) &&
           ::write(orders_[1], &end_.own(), sizeof theirs) == sizeof theirs &&
           ::read(answers_[0], &theirs, sizeof theirs) == sizeof theirs && end_.meet(theirs);
  }

  bool does(const Batch& batch) const override {
    return moves(batch.operation) || (batch.pages == 0 && batch.depth == 1);
  }

  Status begin(const Batch& batch) override {
    const std::uint64_t pages = std::max<std::uint64_t>(1, batch.pages);
    fill(memory_, batch.size * batch.places * pages, batch.seed);
    order_ = shuffled(pages);
    answered_ = end_.received();
    const Job job{static_cast<std::uint64_t>(batch.operation), batch.size, batch.rounds, batch.places, pages};
    char ready = 0;
    if (::write(orders_[1], &job, sizeof job) != sizeof job || ::read(answers_[0], &ready, 1) != 1) return gone();
    return {};
  }

  Status once(const Batch& batch, std::uint64_t round) override {
    const std::uint64_t pages = std::max<std::uint64_t>(1, batch.pages);
    if (moves(batch.operation)) {
      for (std::uint64_t i = 0; i < batch.depth; ++i) {
        const std::uint64_t at = batch.place(round * batch.depth + i) * batch.size * pages;
        if (!end_.at_most(batch.depth - 1)) return gone();
        for (const std::uint64_t page : order_)
          if (!end_.move(batch.operation == Operation::read, at + page * batch.size, batch.size)) return gone();
      }
      return (batch.depth > 1 && round + 1 < batch.rounds) || end_.at_most(0) ? Status() : gone();
    }
    const std::uint64_t at = batch.place(round) * batch.size;
    const bool ok = end_.receive(at, batch.size) && end_.send(at, batch.size) && end_.until_received(++answered_);
    return ok ? Status() : gone();
  }

  Result<Cost> end(const Batch&) override {
    if (!end_.at_most(0)) return gone();
    shared_->over.fetch_add(1);
    return Cost();
  }

 private:
  static Status gone() { return {ErrorCode::system_error, "the bare loop over libfabric broke"}; }

  [[noreturn]] void help(const std::string& provider, std::uint64_t most) {
    FabricAddress theirs;
    if (!end_.open(provider, memory_, most) || ::read(orders_[0], &theirs, sizeof theirs) != sizeof theirs ||
        !end_.meet(theirs) || ::write(answers_[1], &end_.own(), sizeof theirs) != sizeof theirs)
      ::_exit(1);
    Job job;
    for (std::uint64_t batch = 0; ::read(orders_[0], &job, sizeof job) == sizeof job; ++batch) {
      const auto operation = static_cast<Operation>(job.operation);
      fill(memory_, job.size * job.places * job.pages, 1);
      std::uint64_t heard = end_.received();
      if (!moves(operation) && !end_.receive(0, job.size)) ::_exit(1);
      if (::write(answers_[1], "r", 1) != 1) break;
      for (std::uint64_t round = 0; !moves(operation) && round < job.rounds; ++round) {
        const std::uint64_t at = round % job.places * job.size;
        if (!end_.until_received(++heard)) ::_exit(1);
        if (round + 1 < job.rounds && !end_.receive((round + 1) % job.places * job.size, job.size)) ::_exit(1);
        if (!end_.send(at, job.size)) ::_exit(1);
      }
      while (shared_->over.load(std::memory_order_acquire) == batch)
        if (!end_.progress()) ::_exit(1);
    }
    ::_exit(0);
  }

  End end_;
  Shared* shared_ = nullptr;
  std::byte* memory_ = nullptr;
  std::vector<std::uint64_t> order_;
  std::uint64_t answered_ = 0;
  int orders_[2] = {-1, -1}, answers_[2] = {-1, -1};
  pid_t pid_ = -1;
};

}  // namespace

std::unique_ptr<Mover> open_fabric_roof(const std::string& provider, std::uint64_t most) {
  auto roof = std::make_unique<FabricRoof>();
  if (!roof->open(provider, most)) return nullptr;
  return roof;
}

}  // namespace fairway::tool::bench
