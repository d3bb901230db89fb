//! Resolved costs of the machine's engines, in picoseconds.

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
    /// What eight of ten other clusters of the machine's kind take more than it, least and most, in percent; none where
    /// nothing is known of others.
    pub others_percent: Option<(f64, f64)>,
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
    /// The start of a collective, which every call takes.
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
