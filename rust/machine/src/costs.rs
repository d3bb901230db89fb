//! Resolved costs of the machine's engines, in picoseconds.

use crate::declared::Topology;
use crate::{Jitter, Ps, Rate};
use indexmap::IndexMap;

/// How the network is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NetworkModel {
    /// Contended links, one reservation per message and link; the head moves on after its first flit.
    CutThrough,
    /// Contended links, one reservation per flit and link.
    Flit,
    /// Latency plus bytes over the slowest link, no contention.
    Analytic,
}

/// One kind of memory that IPCQ slots can live in; an access costs `setup + bytes/bw (+ bytes/bank_bw)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// Fixed cost of an access.
    pub setup_ps: Ps,
    /// Memory bandwidth.
    pub rate: Rate,
    /// Bandwidth of the hop between PE and bank ([`Rate::UNLIMITED`] where there is none).
    pub bank_rate: Rate,
}

impl Tier {
    /// Cost of one slot write or one slot read.
    #[inline]
    pub fn access_ps(&self, bytes: u64) -> Ps {
        self.setup_ps + self.rate.ps(bytes) + self.bank_rate.ps(bytes)
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
    /// The part of the bandwidths that calls of a size get; `efficiency`, `max_gbs` and `nic_gbs` have it in them.
    pub share: f64,
    /// Bytes of one rank's array at which half of the bandwidth is reached.
    pub ramp_bytes: u64,
    /// The power with which the share of the bandwidth grows up to there and beyond.
    pub ramp_exponent: f64,
    /// Least bytes of one rank's array that it is used for.
    pub min_bytes: u64,
    /// Most bytes of one rank's array that it is used for.
    pub max_bytes: u64,
    /// Least bytes of one rank's array by the number of ranks that it is used for.
    pub min_chunk_bytes: u64,
    /// Most bytes of one rank's array by the number of ranks that it is used for.
    pub max_chunk_bytes: u64,
    /// The algorithms that the library speaks it with; empty for all.
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
    /// The payload that a link of so many bytes per nanosecond carries.
    pub fn on(&self, rate: Rate) -> Rate {
        self.bounded(rate, self.rewired(self.max_gbs, self.wire, rate, 1.0))
    }

    /// The payload that a link inside a node carries of calls between nodes, whose messages wait for links and interfaces in
    /// turn: the slowest of them is what `max_gbs` was measured with.
    pub fn across(&self, link: Rate, ways: &Ways) -> Rate {
        self.bounded(link, self.between(link, ways))
    }

    /// The payload that the way between a SIP and the spine carries, over some of the interfaces of a node; `across`: of
    /// calls between nodes, over links of this rate.
    pub fn on_way(&self, ways: &Ways, across: Option<Rate>) -> Rate {
        let channels = self.channels.map_or(f64::INFINITY, |all| all.together());
        let most = match (self.nic_gbs, across) {
            (Some(most), _) => (self.rewired(most, self.nic_wire, ways.interface, ways.gain) * ways.used).min(channels),
            (None, Some(link)) => self.between(link, ways),
            (None, None) => self.rewired(self.max_gbs, self.nic_wire, ways.interface, ways.gain * ways.striped),
        };
        if ways.used == ways.striped {
            return self.bounded(ways.way(), most);
        }
        // Fewer interfaces are full sooner: the share of calls of this size is one of all of them.
        let all = self.bounded(Ways { used: ways.striped, ..*ways }.way(), most);
        let alone = Self { efficiency: self.efficiency / self.share, ..self.clone() };
        alone.bounded(ways.way(), most.min(all.gbs()))
    }

    /// `max_gbs` of calls between nodes.
    fn between(&self, link: Rate, ways: &Ways) -> f64 {
        let (Some(wire), Some(nic), None) = (self.wire, self.nic_wire, self.nic_gbs) else {
            return self.rewired(self.max_gbs, self.wire, link, 1.0);
        };
        let all = |nic: Rate| Rate::from_gbs(nic.gbs() * ways.striped * ways.gain).unwrap_or(Rate::UNLIMITED);
        if (wire, nic) == (link, ways.interface) {
            return self.max_gbs;
        }
        self.rewired(self.max_gbs, Some(wire.slower(all(nic))), link.slower(all(ways.interface)), 1.0)
    }

    /// The payload that the interfaces of a node of so many SIPs carry for all of them, of what they have together.
    pub fn on_node(&self, rate: Rate, ways: &Ways, sips: f64) -> Rate {
        self.nic_gbs.map_or(rate, |most| {
            self.bounded(rate, self.rewired(most, self.nic_wire, ways.interface, ways.gain) * sips)
        })
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
        if gbs < rate.gbs() { Rate::from_gbs(gbs).unwrap_or(rate) } else { rate }
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

/// A range of sizes for which a fitted machine is valid, and how far it was off there at sizes that were held back.
#[derive(Debug, Clone, PartialEq)]
pub struct Band {
    /// The collective.
    pub collective: String,
    /// Ranks that took part.
    pub ranks: u32,
    /// First size, in bytes of one rank's array.
    pub from_bytes: u64,
    /// Last size.
    pub to_bytes: u64,
    /// Mean error, in percent.
    pub mean_percent: f64,
    /// Largest error, in percent.
    pub worst_percent: f64,
}

/// Names of the algorithms that a communication library runs, by collective.
pub type Library = Vec<(&'static str, Vec<String>)>;

/// Channels of a PE's DMA engine in each direction: transfers that are under way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmaChannels {
    /// So many; a transfer takes the one that is free first, of those the first.
    Any(u32),
    /// One for each link between SIPs that ways begin with, and one for what crosses none: links never wait for each
    /// other.
    PerLink,
}

/// Everything an operation can cost besides the links it crosses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Costs {
    /// The host's start of a collective that runs alone.
    pub launch_ps: Ps,
    /// Charged for every `tl` call.
    pub dispatch_ps: Ps,
    /// From a DMA descriptor's issue to its first byte.
    pub dma_setup_ps: Ps,
    /// Transfers that a PE has under way at once in each direction.
    pub dma_channels: DmaChannels,
    /// Address generation and flow control of one `tl.send`.
    pub ipcq_send_ps: Ps,
    /// Pointer management of one `tl.recv`.
    pub ipcq_recv_ps: Ps,
    /// Overhead of a credit message besides its route and serialisation.
    pub credit_overhead_ps: Ps,
    /// True when a receive completes only once its credit has reached the sender.
    pub credit_blocks_receiver: bool,
    /// Bytes the math engine processes per nanosecond; a call is rounded up to whole nanoseconds.
    pub math_bytes_per_ns: u64,
    /// Multiply-accumulates of the matrix engine per nanosecond.
    pub gemm_macs_per_ns: u64,
    /// Unit in which long messages pipeline over hops.
    pub flit_bytes: u64,
    /// Network timing model.
    pub network: NetworkModel,
    /// Random delays.
    pub jitter: Jitter,
    /// IPCQ slot tiers by name, in declaration order.
    pub tiers: IndexMap<String, Tier>,
}

impl Costs {
    pub(crate) fn of(declared: &Topology) -> Self {
        let (pe, ipcq) = (&declared.pe, &declared.ipcq);
        let tiers = ipcq.tiers.0.iter().map(|(name, tier)| {
            let rates = (tier.bandwidth_gbs.rate, tier.bank_bandwidth_gbs.rate);
            (name.clone(), Tier { setup_ps: tier.setup_ns.0, rate: rates.0, bank_rate: rates.1 })
        });
        let launch = &declared.launch;
        let [overhead, per_rank] = [launch.overhead_ns, launch.per_rank_ns].map(|ns| ns.map_or(0, |ns| ns.0));
        Self {
            launch_ps: overhead + per_rank * u64::from(declared.system.sips.count.0),
            dispatch_ps: pe.dispatch_ns.0,
            dma_setup_ps: pe.dma.setup_ns.0,
            dma_channels: pe.dma.channels.unwrap_or(DmaChannels::Any(1)),
            ipcq_send_ps: ipcq.send_ns.0,
            ipcq_recv_ps: ipcq.recv_ns.0,
            credit_overhead_ps: ipcq.credit.overhead_ns.0,
            credit_blocks_receiver: ipcq.credit.blocks_receiver,
            // An f16 has two bytes; unlimited stays unlimited.
            math_bytes_per_ns: pe.math.f16_per_ns.0.saturating_mul(2),
            gemm_macs_per_ns: pe.gemm.macs_per_ns.0,
            flit_bytes: u64::from(declared.system.flit_bytes.0),
            network: declared.system.network_model,
            jitter: Jitter {
                seed: u64::from(declared.faults.jitter.seed.0),
                latency_ps: declared.faults.jitter.latency_ns.0,
                skew_ps: declared.faults.jitter.skew_ns.0,
            },
            tiers: tiers.collect(),
        }
    }
}
