//! The machine as the messages of a call find it.

use crate::protocol::Carried;
use crate::{CallCosts, Machine, Protocol, Rate};
use ahbm_findings::Diagnostic;
use std::sync::Arc;

/// GB/s of payload that a protocol lets a link between SIPs carry, the way of a SIP between nodes of `topology: nodes`, and
/// all ways of a node together; none where the wires themselves have no more.
pub type Caps = (Option<f64>, Option<f64>, Option<f64>);

impl Machine {
    /// Sets what depends on the call.
    pub(crate) fn set_costs(&mut self, call: Arc<CallCosts>) {
        let name = self.protocol.as_ref().or(call.protocol.as_ref());
        let protocol = name.and_then(|name| self.protocols.iter().find(|(own, _)| own == name));
        let protocol = protocol.map(|(_, protocol)| protocol.of_call(&call));
        self.step_ps = protocol.as_ref().map_or(0, |of| of.step_ps);
        self.nic_step_ps = protocol.as_ref().filter(|_| self.topology == "nodes").and_then(|of| of.nic_step_ps);
        self.costs.math_bytes_per_ns = call.math_per_ns.map_or(self.math_bytes_per_ns, |each| each.saturating_mul(2));
        self.sips.carried = Carried::new(self.sips.link, self.sips.nodes.as_ref(), protocol, &call);
        self.call = call;
    }

    /// The call whose messages the costs are of.
    pub fn call(&self) -> &CallCosts {
        &self.call
    }

    /// The protocol of the call, by name and as the call has it: the machine's for all runs, else the call's own.
    pub fn protocol_of_call(&self) -> Option<(&str, &Protocol)> {
        self.protocol.as_deref().or(self.call.protocol.as_deref()).zip(self.sips.carried.protocol.as_deref())
    }

    /// The machine as the messages of a call find it; its own network and parameters stay.
    ///
    /// # Errors
    /// `AHBM-V125` for a protocol that the machine does not have.
    pub fn with_costs(&self, call: &CallCosts) -> Result<Self, Diagnostic> {
        let known = |name: &String| self.protocols().iter().any(|(own, _)| own == name);
        if let Some(name) = call.protocol.as_ref().filter(|name| !known(name)) {
            return Err(Diagnostic::new(
                "AHBM-V125",
                format!("a call has protocol {name}, which the machine does not have"),
            ));
        }
        let mut machine = self.clone();
        machine.set_costs(Arc::new(call.clone()));
        Ok(machine)
    }

    /// Where the protocol of the call limits, so that more bandwidth of the machine between SIPs changes nothing, or less
    /// than it could; none without a protocol. Bandwidths are alike up to the factor `alike`.
    pub fn caps(&self, alike: f64) -> Option<Caps> {
        let (sips, call) = (&self.sips, self.call());
        let (protocol, slowest, across) = (sips.carried.protocol.as_ref()?, sips.slowest(), call.interfaces.is_some());
        let less = |most: f64, rate: Rate| (most < alike * rate.gbs() * protocol.efficiency).then_some(most);
        let Some(nodes) = &sips.nodes else {
            return Some((less(protocol.most_on(slowest, None), slowest), None, None));
        };
        let ways = nodes.ways(call);
        let most = protocol.most_on_way(&ways, across.then_some(slowest));
        let node = protocol.most_on_node(&ways, f64::from(nodes.size));
        Some((
            less(protocol.most_on(slowest, across.then_some(&ways)), slowest),
            less(most, ways.way()),
            node.and_then(|most| less(most, nodes.together(&ways))),
        ))
    }
}
