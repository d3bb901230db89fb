//! The network as the synthesizer sees it: NPUs and directed links.

mod distances;
mod regular;

pub(crate) use distances::Distances;
pub(crate) use regular::{Regular, Shape};

use ahbm_engine::interrupt::spend;
use ahbm_findings::Diagnostic;
use ahbm_machine::{Machine, Ps, Rate, SipNetwork};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// A directed link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// NPU it leaves.
    pub from: u32,
    /// NPU it enters.
    pub to: u32,
    /// Its bandwidth.
    pub rate: Rate,
    /// Its latency.
    pub latency_ps: Ps,
}

impl Link {
    /// From the first byte's departure to the last byte's arrival.
    pub fn ps(&self, bytes: u64) -> Ps {
        self.rate.ps(bytes) + self.latency_ps
    }
}

/// Most NPUs at a switch.
const SWITCHED: u32 = 1024;

/// The places of the NPUs, when they form a grid: number = (z * h + y) * w + x.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// Extent of every dimension, all greater than 1.
    pub extents: Vec<u32>,
    /// Torus rather than mesh.
    pub wrap: bool,
}

/// A switch between all NPUs. Every pair has a link; those that leave an NPU share its port, as do those that enter it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    /// From the first byte's departure to its arrival at the port that leads out of the switch.
    pub enter_ps: Ps,
    /// The bytes that are forwarded as soon as they are complete.
    pub flit_bytes: u64,
    /// Plans may have it reduce and copy; no schedule made here does.
    pub reduces: bool,
}

/// Nodes behind the NPUs that only pass on what they get, unless they reduce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Relayed {
    /// Number of NPUs, which come first.
    pub(crate) npus: u32,
    /// NPUs of a node; 1 where the network has no nodes. The relays of a node have its number, modulo the nodes.
    pub(crate) size: u32,
    /// Some switch of a node reduces, some one between nodes does.
    pub(crate) reduces: [bool; 2],
}

impl Relayed {
    /// The node that a vertex is of, where it is of one.
    pub(crate) fn node(&self, vertex: u32) -> Option<u32> {
        let nodes = self.npus / self.size;
        match vertex.checked_sub(self.npus) {
            None => Some(vertex / self.size),
            // Each node has a switch, a way out and a way in; the spine is the last.
            Some(relay) => (self.size > 1 && relay < 3 * nodes).then(|| relay % nodes),
        }
    }
}

/// NPUs `0..nodes` and the links between them; every NPU reaches every other.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    nodes: u32,
    links: Vec<Link>,
    grid: Option<Grid>,
    switch: Option<Switch>,
    regular: Option<Regular>,
    relayed: Option<Relayed>,
    /// Capacity of each link in multiples of `unit_gbs`.
    capacity: Vec<u64>,
    unit_gbs: f64,
    out: Adjacency,
    incoming: Adjacency,
}

/// Links by the node they touch.
#[derive(Debug, Clone, PartialEq, Default)]
struct Adjacency {
    first: Vec<u32>,
    links: Vec<u32>,
}

impl Adjacency {
    fn new(nodes: u32, ends: impl Iterator<Item = u32> + Clone) -> Self {
        let mut first = vec![0u32; nodes as usize + 1];
        for end in ends.clone() {
            first[end as usize + 1] += 1;
        }
        for node in 0..nodes as usize {
            first[node + 1] += first[node];
        }
        let mut next = first.clone();
        let mut links = vec![0; *first.last().unwrap_or(&0) as usize];
        for (link, end) in ends.enumerate() {
            links[next[end as usize] as usize] = link as u32;
            next[end as usize] += 1;
        }
        Self { first, links }
    }

    fn of(&self, node: u32) -> &[u32] {
        &self.links[self.range(node)]
    }

    /// Where the links of a node stand among those of all.
    fn range(&self, node: u32) -> std::ops::Range<usize> {
        self.first[node as usize] as usize..self.first[node as usize + 1] as usize
    }
}

impl Graph {
    /// The network between the SIPs of a machine, each taken as one NPU; relays are nodes that follow them.
    ///
    /// # Errors
    /// `AHBM-B402` for a switch with too many pairs of NPUs, `AHBM-U401` for one with faulty links, and what
    /// [`Graph::new`] reports.
    pub fn of(machine: &Machine) -> Result<Self, Diagnostic> {
        let sips = machine.sfr().sips;
        let relays = if machine.sfr().network == SipNetwork::Custom { machine.relays() } else { 0 };
        let mut links: Vec<Link> = machine
            .links_between_sips()
            .map(|l| Link { from: l.from, to: l.to, rate: l.rate, latency_ps: l.latency_ps })
            .collect();
        let mut switch = None;
        if machine.sfr().network == SipNetwork::Switch
            && let Some(&port) = links.first()
        {
            if sips > SWITCHED {
                let text = format!("{sips} NPUs at a switch, more than {SWITCHED}");
                return Err(Diagnostic::new("AHBM-B402", text).hint("every pair of them counts as a link"));
            }
            let alike = |l: &Link| (l.rate, l.latency_ps) == (port.rate, port.latency_ps);
            if links.len() != 2 * sips as usize || !links.iter().all(alike) {
                return Err(Diagnostic::new("AHBM-U401", "the links of the switch differ")
                    .hint("without faults, every NPU has the same link to and from the switch"));
            }
            let enter_ps = port.latency_ps + machine.switch_ps();
            switch =
                Some(Switch { enter_ps, flit_bytes: machine.costs().flit_bytes, reduces: machine.switch_reduces() });
            let pairs = (0..sips).flat_map(|from| (0..sips).filter(move |&to| to != from).map(move |to| (from, to)));
            links = pairs.map(|(from, to)| Link { from, to, latency_ps: enter_ps + port.latency_ps, ..port }).collect();
        }
        let (extents, wrap) = match machine.sfr().network {
            SipNetwork::Ring => (vec![sips], true),
            SipNetwork::Grid { w, h, d, wrap } => ([w, h, d].into_iter().filter(|&e| e > 1).collect(), wrap),
            SipNetwork::Hypercube { dims } => (vec![2; dims as usize], false),
            _ => (Vec::new(), false),
        };
        let grid = (!extents.is_empty()).then_some(Grid { extents, wrap });
        let size = machine.node_size();
        let reduces = [size, sips].map(|joined| machine.reducing_switch(0..joined).is_ok());
        let relayed = (relays > 0).then_some(Relayed { npus: sips, size, reduces });
        Ok(Self { grid, switch, relayed, regular: Regular::of(machine), ..Self::new(sips + relays, links)? })
    }

    /// A graph from its links.
    ///
    /// # Errors
    /// `AHBM-U402` when some NPU does not reach another (or there is only one), `AHBM-U403` for a link of unlimited
    /// bandwidth, `AHBM-U404` for a link that leads nowhere else.
    pub fn new(nodes: u32, links: Vec<Link>) -> Result<Self, Diagnostic> {
        if let Some(link) = links.iter().find(|l| l.rate.is_unlimited()) {
            let text = format!("the link from {} to {} has unlimited bandwidth", link.from, link.to);
            return Err(Diagnostic::new("AHBM-U403", text).hint("give every link between SIPs a bandwidth"));
        }
        if let Some(link) = links.iter().find(|l| l.from == l.to || l.from >= nodes || l.to >= nodes) {
            let text = format!("a link from {} to {} among {nodes} NPUs", link.from, link.to);
            return Err(Diagnostic::new("AHBM-U404", text));
        }
        let exact: Vec<u64> = links.iter().map(|l| kilobytes(l.rate)).collect();
        let unit = exact.iter().fold(0, |a, &b| gcd(a, b)).max(1);
        let graph = Self {
            nodes,
            grid: None,
            switch: None,
            regular: None,
            relayed: None,
            capacity: exact.iter().map(|c| c / unit).collect(),
            unit_gbs: unit as f64 / 1e6,
            out: Adjacency::new(nodes, links.iter().map(|l| l.from)),
            incoming: Adjacency::new(nodes, links.iter().map(|l| l.to)),
            links,
        };
        if nodes < 2 || !graph.spans(true) || !graph.spans(false) {
            let text = format!("not every one of the {nodes} NPUs reaches every other");
            return Err(Diagnostic::new("AHBM-U402", text).hint("a collective needs two NPUs or more, all connected"));
        }
        Ok(graph)
    }

    /// The same graph, known to be a mesh of these extents where its links are alike and as many; they join neighbours.
    pub(crate) fn known_as_mesh(self, extents: &[u32]) -> Self {
        let link = self.links[0];
        let shape = Regular::mesh(extents, link.rate, link.latency_ps);
        let whole = |shape: &Regular| self.uniform() && shape.links() == self.links.len() as u64;
        Self { regular: shape.filter(whole), ..self }
    }

    /// True when node 0 reaches all nodes (`forward`), or all nodes reach it.
    fn spans(&self, forward: bool) -> bool {
        let mut seen = vec![false; self.nodes as usize];
        let mut stack = vec![0];
        seen[0] = true;
        let mut count = 1;
        while let Some(node) = stack.pop() {
            let links = if forward { self.out(node) } else { self.incoming(node) };
            for &link in links {
                let link = self.link(link);
                let next = if forward { link.to } else { link.from };
                if !std::mem::replace(&mut seen[next as usize], true) {
                    count += 1;
                    stack.push(next);
                }
            }
        }
        count == self.nodes
    }

    /// The same graph with every link turned round; links keep their indices.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let links = self.links.iter().map(|l| Link { from: l.to, to: l.from, ..*l }).collect();
        Self {
            links,
            capacity: self.capacity.clone(),
            grid: self.grid.clone(),
            regular: self.regular.clone(),
            out: self.incoming.clone(),
            incoming: self.out.clone(),
            ..*self
        }
    }

    /// The same network without a switch: the capacity of a port, split evenly among the links that share it. A flow
    /// that fits into these links fits into the ports, and no cut between NPUs is narrower than before. (ForestColl,
    /// 2024, splits edges off a switch in this way.)
    pub(crate) fn split(&self) -> Cow<'_, Self> {
        if self.switch.is_none() {
            return Cow::Borrowed(self);
        }
        let others = u64::from(self.nodes - 1);
        let unit_gbs = self.unit_gbs * self.capacity[0] as f64 / others as f64;
        let regular = self.regular.as_ref().map(|regular| regular.split(unit_gbs));
        Cow::Owned(Self { switch: None, regular, capacity: vec![1; self.links.len()], unit_gbs, ..self.clone() })
    }

    /// Number of NPUs.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// All links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// A link by index.
    pub fn link(&self, index: u32) -> &Link {
        &self.links[index as usize]
    }

    /// The grid the NPUs form, if they do.
    pub fn grid(&self) -> Option<&Grid> {
        self.grid.as_ref()
    }

    /// The regular network that it is, as far as is known.
    pub(crate) fn regular(&self) -> Option<&Regular> {
        self.regular.as_ref()
    }

    /// The relays behind the NPUs, if there are any.
    pub(crate) fn relayed(&self) -> Option<&Relayed> {
        self.relayed.as_ref()
    }

    /// The same list of links, of which no shape is known.
    #[cfg(test)]
    pub(crate) fn without_shape(self) -> Self {
        Self { regular: None, ..self }
    }

    /// The switch between the NPUs, if there is one.
    pub fn switch(&self) -> Option<&Switch> {
        self.switch.as_ref()
    }

    /// The port that a transfer over `link` occupies first: the link itself, or its sender's port to the switch.
    pub fn port(&self, link: u32) -> u32 {
        if self.switch.is_some() { self.link(link).from } else { link }
    }

    /// Number of ports: one per link, or one per NPU at a switch.
    pub fn ports(&self) -> u32 {
        if self.switch.is_some() { self.nodes } else { self.links.len() as u32 }
    }

    /// Capacity of a link in multiples of [`Graph::unit_gbs`].
    pub fn capacity(&self, link: u32) -> u64 {
        self.capacity[link as usize]
    }

    /// The greatest bandwidth of which every link has a whole multiple.
    pub fn unit_gbs(&self) -> f64 {
        self.unit_gbs
    }

    /// Links that leave a node.
    pub fn out(&self, node: u32) -> &[u32] {
        self.out.of(node)
    }

    /// Links that enter a node.
    pub fn incoming(&self, node: u32) -> &[u32] {
        self.incoming.of(node)
    }

    /// True when all links have one bandwidth and one latency.
    pub fn uniform(&self) -> bool {
        self.links.windows(2).all(|w| (w[0].rate, w[0].latency_ps) == (w[1].rate, w[1].latency_ps))
    }

    /// Least latency of any link.
    pub fn min_latency_ps(&self) -> Ps {
        self.links.iter().map(|l| l.latency_ps).min().unwrap_or(0)
    }

    /// For every link, the index of a link the other way; `None` where one has none.
    pub fn partners(&self) -> Option<Vec<u32>> {
        let mut partner = vec![u32::MAX; self.links.len()];
        for (index, link) in self.links.iter().enumerate() {
            if partner[index] == u32::MAX {
                let free = |&&l: &&u32| self.link(l).to == link.from && partner[l as usize] == u32::MAX;
                let other = *self.out(link.to).iter().find(free)?;
                partner[index] = other;
                partner[other as usize] = index as u32;
            }
        }
        Some(partner)
    }

    /// True when between any two nodes as much fits into the links one way as into those the other way.
    pub(crate) fn symmetric(&self) -> bool {
        let mut more: FxHashMap<(u32, u32), i128> = FxHashMap::default();
        for (link, capacity) in self.links.iter().zip(&self.capacity) {
            let (pair, sign) = if link.from < link.to { ((link.from, link.to), 1) } else { ((link.to, link.from), -1) };
            *more.entry(pair).or_default() += sign * i128::from(*capacity);
        }
        more.values().all(|&more| more == 0)
    }

    /// Least latencies from nodes that are asked for.
    pub(crate) fn distances(&self) -> Distances<'_> {
        Distances::new(self)
    }

    /// The first link from one NPU to another.
    pub fn between(&self, from: u32, to: u32) -> Option<u32> {
        if self.switch.is_some() {
            return (from != to).then(|| from * (self.nodes - 1) + to - u32::from(to > from));
        }
        self.out(from).iter().copied().find(|&l| self.link(l).to == to)
    }

    /// Number of links on the shortest ways from `root`.
    pub fn hops(&self, root: u32) -> Vec<u32> {
        let mut hops = vec![u32::MAX; self.nodes as usize];
        let mut queue = std::collections::VecDeque::from([root]);
        hops[root as usize] = 0;
        while let Some(node) = queue.pop_front() {
            spend(8 * self.out(node).len() as u64);
            for &link in self.out(node) {
                let to = self.link(link).to;
                if hops[to as usize] == u32::MAX {
                    hops[to as usize] = hops[node as usize] + 1;
                    queue.push_back(to);
                }
            }
        }
        hops
    }
}

/// When ports are free, and what messages do to them: the emulator's cut-through model, of which a direct link is the
/// case of a single hop.
pub(crate) struct Clock<'a> {
    graph: &'a Graph,
    /// Per port.
    out: Vec<Ps>,
    /// Per NPU, the port that leads from the switch to it.
    into: Vec<Ps>,
}

impl<'a> Clock<'a> {
    pub(crate) fn new(graph: &'a Graph) -> Self {
        let into = if graph.switch.is_some() { graph.nodes as usize } else { 0 };
        Self { graph, out: vec![0; graph.ports() as usize], into: vec![0; into] }
    }

    /// When the port that a link leaves by is free.
    pub(crate) fn free(&self, link: u32) -> Ps {
        self.out[self.graph.port(link) as usize]
    }

    /// Sends `bytes` that are there at `ready`, before anything that is sent later: when the port is free again, and
    /// when the last byte has arrived.
    #[inline]
    pub(crate) fn send(&mut self, index: u32, ready: Ps, bytes: u64) -> (Ps, Ps) {
        let left = self.leave(index, ready, bytes);
        (left, self.arrive(index, left, bytes))
    }

    /// The first part of [`Clock::send`]: when the port is free again.
    #[inline]
    pub(crate) fn leave(&mut self, index: u32, ready: Ps, bytes: u64) -> Ps {
        let link = self.graph.link(index);
        let port = &mut self.out[if self.graph.switch.is_some() { link.from } else { index } as usize];
        *port = ready.max(*port) + link.rate.ps(bytes);
        *port
    }

    /// When the first flit of what has `left` a port is at the port that leads out of the switch; none on direct links.
    pub(crate) fn head(&self, index: u32, left: Ps, bytes: u64) -> Option<Ps> {
        let (switch, link) = (self.graph.switch?, self.graph.link(index));
        Some(left - link.rate.ps(bytes) + link.rate.ps(bytes.min(switch.flit_bytes)) + switch.enter_ps)
    }

    /// The second part of [`Clock::send`]: when the last byte of what has `left` has arrived.
    #[inline]
    pub(crate) fn arrive(&mut self, index: u32, left: Ps, bytes: u64) -> Ps {
        let link = self.graph.link(index);
        let Some(switch) = &self.graph.switch else { return left + link.latency_ps };
        let duration = link.rate.ps(bytes);
        let flit = bytes.min(switch.flit_bytes);
        let (head, tail) = (left - duration + link.rate.ps(flit) + switch.enter_ps, left + switch.enter_ps);
        let down = &mut self.into[link.to as usize];
        let mut end = head.max(*down) + duration;
        if tail > head {
            let last = if bytes.is_multiple_of(switch.flit_bytes) { flit } else { bytes % switch.flit_bytes };
            end = end.max(tail + link.rate.ps(last));
        }
        *down = end;
        end + link.latency_ps - switch.enter_ps
    }
}

/// A bandwidth in kB/s, an integer for every bandwidth that a topology can state.
pub(crate) fn kilobytes(rate: Rate) -> u64 {
    ((rate.gbs() * 1e6).round() as u64).max(1)
}

pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
