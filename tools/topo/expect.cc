#include <memory>

#include "predict/open.h"
#include "topo.h"

namespace fairway::tool {
namespace {

std::optional<predict::Endpoint> endpoint_of(topology::NodeRef node) {
  predict::Endpoint endpoint;
  endpoint.index = node.index;
  if (node.kind == topology::NodeKind::gpu) {
    endpoint.kind = predict::EndpointKind::gpu;
  } else if (node.kind == topology::NodeKind::nic) {
    endpoint.kind = predict::EndpointKind::nic;
  } else if (node.kind == topology::NodeKind::numa_node) {
    endpoint.kind = predict::EndpointKind::host_memory;
  } else {
    return {};
  }
  return endpoint;
}

}  // namespace

Result<render::ExpectRate> expect_rates(const topology::Machine& machine, const TopoInput& input) {
  const auto constants = predict::constants_beside(input.from);
  if (!constants) return constants.status();
  auto model = std::make_shared<const predict::Model>(machine, *constants);
  return render::ExpectRate([model](topology::NodeRef a, topology::NodeRef b) -> std::optional<render::Expected> {
    const auto from = endpoint_of(a);
    const auto to = endpoint_of(b);
    // Between two NICs nothing flows but over the network.
    if (!from || !to || (a.kind == topology::NodeKind::nic && b.kind == topology::NodeKind::nic)) return {};
    predict::Flow flow;
    flow.from = *from;
    flow.to = *to;
    const Result<predict::Prediction> prediction = model->predict(flow);
    if (!prediction || !prediction->known) return {};
    render::Expected expected;
    expected.low_gbs = prediction->gbs.low;
    expected.expected_gbs = prediction->gbs.expected;
    expected.high_gbs = prediction->gbs.high;
    expected.bottleneck = prediction->bottleneck;
    return expected;
  });
}

}  // namespace fairway::tool
