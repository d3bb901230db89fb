//! The ways that data takes over a machine: what each costs alone, and what its links carry together.

use ahbm_findings::Diagnostic;
use ahbm_machine::{DmaChannels, LinkId, Machine, Node, PeId, Ps, Rate};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

type Map<K, V> = IndexMap<K, V, FxBuildHasher>;

/// A way by its number.
pub(super) type WayId = u32;

/// A way from one node to another.
#[derive(Debug, Clone)]
struct Way {
    latency_ps: Ps,
    slowest: Rate,
    /// Of its first link, at which a DMA channel hands the bytes over.
    entry: Rate,
    /// Whose DMA channel it takes, where links have their own.
    dma: Option<LinkId>,
    /// Its links, by their places in [`Ways::links`].
    links: Vec<u32>,
}

/// A link or the DMA channel of a PE, and for how long it is busy per depth of the chunks that it carries, in ascending order.
#[derive(Debug, Clone)]
struct Link {
    rate: Rate,
    busy: Vec<(u32, Ps)>,
}

/// What transfers wait for each other at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Resource {
    Link(LinkId),
    /// The channels of a PE that read, or those that write; those for a link.
    Dma(PeId, bool, Option<LinkId>),
}

/// All ways that were asked for.
pub(super) struct Ways<'a> {
    machine: &'a Machine,
    known: Map<(Node, Node), WayId>,
    ways: Vec<Way>,
    numbers: Map<Resource, u32>,
    links: Vec<Link>,
    /// Per depth, the longest that a transfer takes besides its bytes, and the longest that a link is busy.
    rounds: Vec<(Ps, Ps)>,
}

impl<'a> Ways<'a> {
    pub(super) fn on(machine: &'a Machine) -> Self {
        Self {
            machine,
            known: Map::default(),
            ways: Vec::new(),
            numbers: Map::default(),
            links: Vec::new(),
            rounds: Vec::new(),
        }
    }

    /// # Errors
    /// As [`Machine::route`].
    pub(super) fn find(&mut self, from: Node, to: Node) -> Result<WayId, Diagnostic> {
        if let Some(&way) = self.known.get(&(from, to)) {
            return Ok(way);
        }
        let route = self.machine.route(from, to)?;
        let rates = route.hops.iter().map(|hop| self.machine.link_rate(hop.link));
        let slowest = rates.clone().fold(Rate::UNLIMITED, Rate::slower);
        let entry = rates.clone().next().unwrap_or(Rate::UNLIMITED);
        let rates: Vec<Rate> = rates.collect();
        let links =
            route.hops.iter().zip(rates).map(|(hop, rate)| self.number(Resource::Link(hop.link), rate)).collect();
        let way =
            Way { latency_ps: route.latency_ps(), slowest, entry, dma: self.machine.dma_link(route.links()), links };
        let number = self.ways.len() as WayId;
        self.ways.push(way);
        self.known.insert((from, to), number);
        Ok(number)
    }

    fn number(&mut self, resource: Resource, rate: Rate) -> u32 {
        let new = self.links.len() as u32;
        let at = *self.numbers.entry(resource).or_insert(new);
        if at == new {
            self.links.push(Link { rate, busy: Vec::new() });
        }
        at
    }

    /// What a transfer takes where nobody else uses its links.
    pub(super) fn ps(&self, way: WayId, bytes: u64) -> Ps {
        let way = &self.ways[way as usize];
        way.latency_ps.saturating_add(way.slowest.ps(bytes))
    }

    /// What its bytes take of that.
    pub(super) fn serial_ps(&self, way: WayId, bytes: u64) -> Ps {
        self.ways[way as usize].slowest.ps(bytes)
    }

    /// A PE's DMA channel carries a transfer of a depth on a way; it takes `beside_ps` besides what the way takes.
    pub(super) fn carry(&mut self, way: WayId, (pe, reads): (PeId, bool), bytes: u64, depth: u32, beside_ps: Ps) {
        let link = self.ways[way as usize].dma;
        let channel = self.number(Resource::Dma(pe, reads, link), Rate::UNLIMITED);
        let (machine, way) = (self.machine, &self.ways[way as usize]);
        if self.rounds.len() <= depth as usize {
            self.rounds.resize(depth as usize + 1, (0, 0));
        }
        let round = &mut self.rounds[depth as usize];
        round.0 = round.0.max(way.latency_ps.saturating_add(beside_ps));
        for &at in &way.links {
            let link = &mut self.links[at as usize];
            let ps = link.rate.ps(bytes);
            round.1 = round.1.max(link.add(depth, ps));
        }
        let handed = machine.costs().dma_setup_ps.saturating_add(way.entry.ps(bytes));
        // Channels that take any transfer share the work.
        let handed = match machine.costs().dma_channels {
            DmaChannels::Any(count) => handed.div_ceil(u64::from(count)),
            DmaChannels::PerLink => handed,
        };
        round.1 = round.1.max(self.links[channel as usize].add(depth, handed));
    }

    /// How long the busiest link or DMA channel is busy.
    pub(super) fn link_ps(&self) -> Ps {
        let total = |link: &Link| link.busy.iter().fold(0, |sum: Ps, &(_, ps)| sum.saturating_add(ps));
        self.links.iter().map(total).max().unwrap_or(0)
    }

    /// Time of chunks that go depth by depth: of each depth the slowest chunk and its busiest link or DMA channel.
    pub(super) fn rounds_ps(&self) -> Ps {
        self.rounds.iter().fold(0, |sum: Ps, &(latency, busy)| sum.saturating_add(latency).saturating_add(busy))
    }
}

impl Link {
    /// It is busy for a transfer of a depth; for how long with all of that depth.
    fn add(&mut self, depth: u32, ps: Ps) -> Ps {
        let found = match self.busy.last() {
            Some(&(last, _)) if last == depth => Ok(self.busy.len() - 1),
            Some(&(last, _)) if last > depth => self.busy.binary_search_by_key(&depth, |&(depth, _)| depth),
            _ => Err(self.busy.len()),
        };
        let place = found.unwrap_or_else(|place| {
            self.busy.insert(place, (depth, 0));
            place
        });
        let busy = &mut self.busy[place].1;
        *busy = busy.saturating_add(ps);
        *busy
    }
}
