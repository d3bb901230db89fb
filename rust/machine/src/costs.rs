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
