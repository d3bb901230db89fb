//! What a call of a communication library costs: its protocol, its channels and its network interfaces.

use crate::{Ps, Rate};
use std::sync::Arc;

/// The least bandwidth that there is, in GB/s.
const SLOWEST: f64 = 1e-6;

/// What the costs of a call depend on besides the machine: its messages have a protocol at a size, and find network
/// interfaces; its math may have fewer threads than the machine's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallCosts {
    /// The protocol, where the machine has none for all runs.
    pub protocol: Option<String>,
    /// Bytes of one rank's array, of which bandwidths of protocols are a function; 0 where they are not known.
    pub nbytes: u64,
    /// Channels instead of those that the bytes fill, of protocols that have as many.
    pub channels: Option<u32>,
    /// Elements of two bytes that the math engine processes per nanosecond, where it is another number than the machine's.
    pub math_per_ns: Option<u64>,
    /// Interfaces that messages between nodes are spread over, at most all of a node; none for a call inside a node, and
    /// where nothing is known of it.
    pub interfaces: Option<u32>,
    /// All ranks send to all others: no switch reduces what crosses the interfaces.
    pub even: bool,
    /// The part of an interface's bandwidth that it gets, as a fraction: less than 1 where ranks have unequal shares.
    pub part: (u64, u64),
}

impl Default for CallCosts {
    fn default() -> Self {
        Self {
            protocol: None,
            nbytes: 0,
            channels: None,
            math_per_ns: None,
            interfaces: None,
            even: false,
            part: (1, 1),
        }
    }
}

/// A protocol of a communication library: what its messages between SIPs cost, and the calls that it is used for.
#[derive(Debug, Clone, PartialEq)]
pub struct Protocol {
    /// Latency of a message besides that of its route.
    pub step_ps: Ps,
    /// That of a message between nodes, where it is another one.
    pub nic_step_ps: Option<Ps>,
    /// Share of a link's bandwidth that payload gets.
    pub efficiency: f64,
    /// Most payload that a link carries, in GB/s, with all channels; infinite where nothing else bounds it.
    pub max_gbs: f64,
    /// Most payload that a network interface carries, in GB/s; `max_gbs` bounds the way of a message where there is none.
    pub nic_gbs: Option<f64>,
    /// The links with which `max_gbs` was measured; it holds over all links where there are none.
    pub wire: Option<Rate>,
    /// The network interfaces with which the bandwidth between nodes was measured.
    pub nic_wire: Option<Rate>,
    /// The part of the bandwidths that calls of a size get, above 1 where they take less: `efficiency`, `max_gbs`, `nic_gbs` and those of channels have it
    /// in them; 1 where none is known.
    pub share: f64,
    /// Bytes of one rank's array at which half of the bandwidth is reached.
    pub ramp_bytes: u64,
    /// The power with which the share of the bandwidth grows up to there and beyond.
    pub ramp_exponent: f64,
    /// What calls of so many bytes of one rank's array take of the time of steps and bytes, by growing sizes.
    pub factors: Vec<(u64, f64)>,
    /// Least bytes of one rank's array that it is used for.
    pub min_bytes: u64,
    /// Most bytes of one rank's array that it is used for.
    pub max_bytes: u64,
    /// Least bytes of one rank's array by the number of ranks that it is used for.
    pub min_chunk_bytes: u64,
    /// Most bytes of one rank's array by the number of ranks that it is used for.
    pub max_chunk_bytes: u64,
    /// The algorithms that the library uses it with; empty for all.
    pub algorithms: Vec<String>,
    /// Bytes in which kernels pass on what arrives; 0: as each kernel says.
    pub slice_bytes: u64,
    /// Messages a queue holds, where the protocol says so.
    pub slots: Option<u32>,
    /// The channels that a call is spread over, where the protocol has any; `max_gbs` is at most that of all.
    pub channels: Option<Channels>,
}

/// Parts of a call that a communication library sends side by side: each has a bandwidth, and all share the links.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Channels {
    /// Most of them.
    pub most: u32,
    /// Most payload of each, in GB/s.
    pub gbs: f64,
    /// Least bytes of one rank's array for each; 0: a call always has all.
    pub bytes: u64,
}

impl Channels {
    /// Most payload of all together, in GB/s.
    pub fn together(&self) -> f64 {
        f64::from(self.most) * self.gbs
    }
}

impl Protocol {
    /// Whether the library uses it for so many bytes of one rank's array among so many ranks.
    pub fn is_for(&self, nbytes: u64, ranks: u64) -> bool {
        (self.min_bytes..=self.max_bytes).contains(&nbytes)
            && (self.min_chunk_bytes..=self.max_chunk_bytes).contains(&(nbytes / ranks.max(1)))
    }

    /// Whether bandwidths depend on the size.
    pub fn by_size(&self) -> bool {
        self.ramp_bytes > 0 || self.channels.is_some() || !self.factors.is_empty()
    }

    /// What a call of so many bytes takes of the time of its steps and bytes: 1 beyond the sizes that are known.
    fn factor(&self, nbytes: u64) -> f64 {
        let next = self.factors.partition_point(|&(bytes, _)| bytes < nbytes);
        match (next.checked_sub(1).and_then(|at| self.factors.get(at)), self.factors.get(next)) {
            (_, Some(&(bytes, factor))) if bytes == nbytes => factor,
            (Some(&(first, one)), Some(&(last, other))) => {
                let part = (nbytes as f64 / first as f64).ln() / (last as f64 / first as f64).ln();
                one * (other / one).powf(part)
            }
            _ => 1.0,
        }
    }

    /// The protocol as a call has it: n bytes get 1 / (1 + (ramp_bytes / n)^ramp_exponent) of the bandwidths.
    ///
    /// With 1/2, they take n / b + sqrt(ramp_bytes * n) / b: the time over a pipeline whose chunks are as long as is best.
    /// Other powers are those of libraries that use more channels for more bytes, as `channels` says with numbers. A factor
    /// of the size is one of steps and bytes alike.
    pub(crate) fn of_call(&self, call: &CallCosts) -> Self {
        let mut own = self.clone();
        if self.by_size() && call.nbytes > 0 {
            let ramp = self.ramp_bytes as f64 / call.nbytes as f64;
            let power = if self.ramp_exponent == 0.5 { ramp.sqrt() } else { ramp.powf(self.ramp_exponent) };
            own.share = if self.ramp_bytes > 0 { 1.0 / (1.0 + power) } else { 1.0 };
            let factor = self.factor(call.nbytes);
            own.share /= factor;
            own.step_ps = (self.step_ps as f64 * factor).round() as Ps;
            own.nic_step_ps = self.nic_step_ps.map(|step| (step as f64 * factor).round() as Ps);
            own.efficiency *= own.share;
            own.max_gbs *= own.share;
            own.nic_gbs = self.nic_gbs.map(|most| most * own.share);
        }
        own.channels = self.channels.map(|all| {
            let filled = call.nbytes.checked_div(all.bytes).filter(|_| call.nbytes > 0);
            let used = filled.map_or(all.most, |filled| u64::from(all.most).min(filled.max(1)) as u32);
            // What the library does not have cannot be asked for.
            let most = call.channels.filter(|&asked| asked <= all.most).unwrap_or(used);
            Channels { most, gbs: all.gbs * own.share, ..all }
        });
        own.max_gbs = own.max_gbs.min(own.channels.map_or(f64::INFINITY, |all| all.together()));
        own
    }

    /// The payload that a link of so many bytes per nanosecond carries.
    pub fn on(&self, rate: Rate) -> Rate {
        self.bounded(rate, self.most_on(rate, None))
    }

    /// The most that a link carries; `across`, inside a node of calls between nodes, whose messages wait for links and
    /// interfaces in turn: the slowest of them is what `max_gbs` was measured with.
    pub(crate) fn most_on(&self, link: Rate, across: Option<&Ways>) -> f64 {
        let (Some(ways), Some(wire), Some(nic), None) = (across, self.wire, self.nic_wire, self.nic_gbs) else {
            return self.rewired(self.max_gbs, self.wire, link, 1.0);
        };
        let all = |nic: Rate| Rate::from_gbs(nic.gbs() * ways.striped * ways.gain).unwrap_or(Rate::UNLIMITED);
        if (wire, nic) == (link, ways.interface) {
            return self.max_gbs;
        }
        self.rewired(self.max_gbs, Some(wire.slower(all(nic))), link.slower(all(ways.interface)), 1.0)
    }

    /// The payload that the way between a SIP and the spine carries, over some of the interfaces of a node; `across`: of
    /// calls between nodes, over links of this rate.
    pub fn on_way(&self, ways: &Ways, across: Option<Rate>) -> Rate {
        let most = self.most_on_way(ways, across);
        if ways.used == ways.striped {
            return self.bounded(ways.way(), most);
        }
        // Fewer interfaces are full sooner: the share of calls of this size is one of all of them.
        let all = self.bounded(Ways { used: ways.striped, ..*ways }.way(), most);
        let alone = Self { efficiency: self.efficiency / self.share, ..self.clone() };
        alone.bounded(ways.way(), most.min(all.gbs()))
    }

    pub(crate) fn most_on_way(&self, ways: &Ways, across: Option<Rate>) -> f64 {
        let channels = self.channels.map_or(f64::INFINITY, |all| all.together());
        match (self.nic_gbs, across) {
            (Some(most), _) => (self.rewired(most, self.nic_wire, ways.interface, ways.gain) * ways.used).min(channels),
            (None, Some(link)) => self.most_on(link, Some(ways)),
            (None, None) => self.rewired(self.max_gbs, self.nic_wire, ways.interface, ways.gain * ways.striped),
        }
    }

    /// The most that the interfaces of a node of so many SIPs carry for all of them.
    pub(crate) fn most_on_node(&self, ways: &Ways, sips: f64) -> Option<f64> {
        self.nic_gbs.map(|most| self.rewired(most, self.nic_wire, ways.interface, ways.gain) * sips)
    }

    /// A limit that was measured with `times` the `wire`, with as many times the `rate`: the time of a byte differs by
    /// what it takes on the wire.
    fn rewired(&self, most: f64, wire: Option<Rate>, rate: Rate, times: f64) -> f64 {
        match wire.filter(|&wire| wire != rate) {
            None => most,
            Some(wire) => {
                let ns = |rate: Rate| 1.0 / (rate.gbs() * times * self.efficiency);
                let left = 1.0 / most - ns(wire) + ns(rate);
                if left > 0.0 { 1.0 / left } else { f64::INFINITY }
            }
        }
    }

    fn bounded(&self, rate: Rate, most: f64) -> Rate {
        let gbs = (rate.gbs() * self.efficiency).min(most);
        if gbs < rate.gbs() { Rate::from_gbs(gbs.max(SLOWEST)).unwrap_or(rate) } else { rate }
    }
}

/// The network interfaces of a node, as a message finds them.
#[derive(Debug, Clone, Copy)]
pub struct Ways {
    /// One of them.
    pub interface: Rate,
    /// Those that the message is spread over.
    pub used: f64,
    /// Those that a library's collectives of whole nodes are spread over.
    pub striped: f64,
    /// What these collectives carry over what the interfaces carry.
    pub gain: f64,
}

impl Ways {
    /// What a message finds without a protocol.
    pub fn way(&self) -> Rate {
        self.times(self.used)
    }

    /// What so many interfaces carry together.
    pub fn times(&self, interfaces: f64) -> Rate {
        // Less than whole nodes reduce nothing on the way.
        let gain = if self.used < self.striped { 1.0 } else { self.gain };
        Rate::from_gbs(self.interface.gbs() * interfaces * gain).unwrap_or(Rate::UNLIMITED)
    }
}

/// The interfaces of a node of `topology: nodes`.
#[derive(Debug, Clone)]
pub(crate) struct Interfaces {
    pub(crate) size: u32,
    pub(crate) gbs: f64,
    /// Whether a library's collectives are spread over all of them.
    pub(crate) spread: bool,
    pub(crate) gain: f64,
    pub(crate) taper: f64,
}

impl Interfaces {
    /// As the messages of a call find them.
    pub(crate) fn ways(&self, call: &CallCosts) -> Ways {
        let part = call.part.0 as f64 / call.part.1.max(1) as f64;
        let striped = if self.spread { self.size } else { 1 };
        Ways {
            interface: Rate::from_gbs((self.gbs * part).max(SLOWEST)).unwrap_or(Rate::UNLIMITED),
            used: f64::from(call.interfaces.map_or(striped, |used| used.min(striped))),
            striped: f64::from(striped),
            gain: if call.even || striped == 1 { 1.0 } else { self.gain },
        }
    }

    /// The way of a node to the spine, of all its interfaces.
    pub(crate) fn together(&self, ways: &Ways) -> Rate {
        ways.times(f64::from(self.size) / self.taper)
    }
}

/// What the links between SIPs carry of a call's payload.
#[derive(Debug, Clone)]
pub(crate) struct Carried {
    /// The protocol as the call has it.
    pub(crate) protocol: Option<Arc<Protocol>>,
    /// A link, where it has no bandwidth of its own.
    pub(crate) link: Rate,
    /// The way between a SIP and the spine.
    pub(crate) way: Rate,
    /// The way between a node and the spine.
    pub(crate) spine: Rate,
    /// Interfaces that a message stands for: it is spread over as many links of a fabric.
    pub(crate) stripes: f64,
}

impl Carried {
    /// Of links of one bandwidth, and of the interfaces of nodes where there are any.
    pub(crate) fn new(link: Rate, nodes: Option<&Interfaces>, protocol: Option<Protocol>, call: &CallCosts) -> Self {
        let protocol = protocol.map(Arc::new);
        let Some(nodes) = nodes else {
            let link = protocol.as_ref().map_or(link, |protocol| protocol.on(link));
            return Self { protocol, link, way: Rate::UNLIMITED, spine: Rate::UNLIMITED, stripes: 1.0 };
        };
        let ways = nodes.ways(call);
        let (together, across) = (nodes.together(&ways), call.interfaces.is_some());
        let stripes = ways.used * if ways.used < ways.striped { 1.0 } else { ways.gain };
        match &protocol {
            None => Self { protocol, link, way: ways.way(), spine: together, stripes },
            Some(of) => Self {
                link: of.bounded(link, of.most_on(link, across.then_some(&ways))),
                way: of.on_way(&ways, across.then_some(link)),
                spine: of
                    .most_on_node(&ways, f64::from(nodes.size))
                    .map_or(together, |most| of.bounded(together, most)),
                protocol,
                stripes,
            },
        }
    }

    /// What a link between switches of a fabric carries for messages that are spread over several interfaces. What a
    /// single message cannot fill, others do: the share that calls of a size get bounds its way there alone.
    pub(crate) fn in_fabric(&self, rate: Rate) -> Rate {
        let share = self.protocol.as_ref().map_or(1.0, |of| (of.efficiency / of.share).min(1.0)) * self.stripes;
        if share == 1.0 { rate } else { Rate::from_gbs((rate.gbs() * share).max(SLOWEST)).unwrap_or(rate) }
    }

    /// What a link of a bandwidth of its own carries.
    pub(crate) fn on(&self, rate: Rate) -> Rate {
        self.protocol.as_ref().map_or(rate, |protocol| protocol.on(rate))
    }
}
