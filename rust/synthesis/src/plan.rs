//! From a schedule to a plan, and to a schedule that a plan for many sizes is made of.

use crate::{Bound, Graph, Link, Request, Schedule, Synthesis};
use ahbm_findings::Diagnostic;
use ahbm_plan::{Goal, Plan, Transfer, Transfers};
use rustc_hash::FxHashMap;

impl Schedule {
    /// The NPUs by rank of the plan: those that take part, then those that only relay.
    pub fn places(&self, graph: &Graph) -> Vec<u32> {
        let relays = (0..graph.nodes()).filter(|npu| !self.members.contains(npu));
        self.members.iter().copied().chain(relays).collect()
    }

    /// The plan of the schedule, in place except for all-to-all. Its chunks are the greatest common measure of those of
    /// the schedule.
    ///
    /// # Errors
    /// `AHBM-U293` for sizes that a plan has no numbers for.
    pub fn to_plan(&self, graph: &Graph) -> Result<Plan, Diagnostic> {
        let mut rank = vec![0; graph.nodes() as usize];
        (0..).zip(self.places(graph)).for_each(|(number, npu)| rank[npu as usize] = number);
        let measure = self.chunk_bytes.iter().fold(0, |a, &b| gcd(a, b)).max(1);
        let Some(pieces) =
            self.chunk_bytes.iter().map(|c| u32::try_from(c / measure).ok()).collect::<Option<Vec<u32>>>()
        else {
            let text = format!("chunks of {measure} bytes are too many for a plan");
            return Err(Diagnostic::new("AHBM-U293", text).hint("choose a size that splits into equal chunks"));
        };
        let (channels, chunks) = (channels(graph), self.chunks());
        let parcels: Vec<u32> = self.parcels.iter().map(|p| p.chunk).collect();
        let arrivals = self.times(graph, true).arrivals;
        let list: Vec<Transfer> = self
            .transfers
            .iter()
            .zip(&arrivals)
            .map(|(t, &at)| {
                let link = graph.link(t.link);
                let channel = channels[t.link as usize];
                let source = self.meaning(link.from, t.chunk());
                let target = self.meaning(link.to, t.chunk());
                // A parcel that passes is added at its destination.
                let adds = t.adds() && target < chunks;
                let [from, to] = [link.from, link.to].map(|npu| rank[npu as usize]);
                Transfer { from, to, channel, source, target, adds, at }
            })
            .collect();
        Plan::from_transfers(&Transfers {
            name: format!("{} by {}", self.collective.name(), self.method),
            goal: Goal::new(self.collective, self.root),
            ranks: self.members.len() as u32,
            relays: graph.nodes() - self.members.len() as u32,
            one_port: graph.switch().is_some(),
            pieces: &pieces,
            parcels: &parcels,
            list: &list,
        })
    }
}

impl Synthesis {
    /// The schedule for the greatest size, up to its own, whose chunks are all equal multiples of `step` bytes, with its
    /// request and bound. Chunks of sizes of their own stay so.
    ///
    /// # Errors
    /// `AHBM-U293` for chunks of less than a step.
    pub fn even(
        &self,
        graph: &Graph,
        request: &Request,
        bound: &Bound,
        step: u64,
    ) -> Result<(Self, Request, Bound), Diagnostic> {
        let (mut schedule, mut request, mut bound) = (self.schedule.clone(), request.clone(), bound.clone());
        let (least, most) = schedule.chunk_bytes.iter().fold((u64::MAX, 0), |(a, b), &c| (a.min(c), b.max(c)));
        if least < step {
            let text = format!("chunks of {least} B are less than the {step} B of the format");
            return Err(Diagnostic::new("AHBM-U293", text).hint("choose a larger size, or fewer chunks"));
        }
        let alike = most - least <= request.unit;
        for bytes in &mut schedule.chunk_bytes {
            *bytes = if alike { least } else { *bytes } / step * step;
        }
        if schedule.chunk_bytes != self.schedule.chunk_bytes {
            request.chunks = schedule.chunk_bytes.len() as u32;
            request.share_bytes = schedule.chunk_bytes.iter().sum();
            bound = request.bound(graph)?;
        }
        Ok((Self::of(graph, schedule), request, bound))
    }
}

/// Per link, how many links before it join the same NPUs.
fn channels(graph: &Graph) -> Vec<u32> {
    let mut seen: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    let number = |link: &Link| {
        let next = seen.entry((link.from, link.to)).or_default();
        *next += 1;
        *next - 1
    };
    graph.links().iter().map(number).collect()
}

/// PEs an NPU needs so that, in a plan, each end of a link has a DMA engine; at a switch one, which keeps what leaves
/// by the port in order.
pub fn ends(graph: &Graph) -> u32 {
    if graph.switch().is_some() {
        return 1;
    }
    (0..graph.nodes()).map(|v| (graph.out(v).len() + graph.incoming(v).len()) as u32).max().unwrap_or(0)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
