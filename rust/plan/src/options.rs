//! The choices that a plan leaves open: sizes, types, protocol, depth of the queues.

use crate::Budget;
use ahbm_findings::Diagnostic;
use ahbm_machine::{Coord, Machine, PeId};
use ahbm_program::{BinaryFn, Dtype, WireFactor};
use rustc_hash::FxHashMap;

/// The depth of a queue that is left to the protocol: see [`Protocol::depth`].
pub const BY_PROTOCOL: u32 = 0;

/// How messages travel: their cost, how long they may be, and how many a queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Payload only.
    Simple,
    /// Every 4 bytes of payload travel with 4 bytes of flag.
    Ll,
    /// Every 120 bytes of payload travel in 128.
    Ll128,
}

impl Protocol {
    /// Every protocol.
    pub const ALL: [Protocol; 3] = [Self::Simple, Self::Ll, Self::Ll128];

    /// Its usual spelling.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Simple => "Simple",
            Self::Ll => "LL",
            Self::Ll128 => "LL128",
        }
    }

    /// From any capitalisation of its name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name().eq_ignore_ascii_case(name))
    }

    /// Bytes on the wire per byte of payload.
    pub const fn wire(self) -> WireFactor {
        match self {
            Self::Simple => WireFactor::ONE,
            Self::Ll => WireFactor::new(2, 1),
            Self::Ll128 => WireFactor::new(128, 120),
        }
    }

    /// Largest payload of one message: a slice. Simple moves half of a 4 MiB buffer at a time; LL has lines of
    /// 16 bytes in a 64 KiB step, half of them flags; LL128 keeps 120 of every 128 bytes of a 614,400-byte step.
    pub const fn slice_bytes(self) -> u64 {
        match self {
            Self::Simple => 2 << 20,
            Self::Ll => 32 << 10,
            Self::Ll128 => 576_000,
        }
    }

    /// Messages a queue holds where `asked` are asked for: [`BY_PROTOCOL`] are those that the runtimes have. Their queues
    /// have 8 steps, of which a message of Simple takes 4 and one of LL and LL128 takes 1.
    pub const fn depth(self, asked: u32) -> u32 {
        match (asked, self) {
            (BY_PROTOCOL, Self::Simple) => 2,
            (BY_PROTOCOL, Self::Ll | Self::Ll128) => 8,
            _ => asked,
        }
    }
}

/// The reduction operator of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum Reduction {
    #[default]
    Sum,
    Prod,
    Min,
    Max,
    /// The sum, divided by the number of ranks where a rank has all of it.
    Avg,
}

impl Reduction {
    /// From the name of a collective's `op`.
    ///
    /// # Errors
    /// `AHBM-U203` for another name.
    pub fn parse(name: &str) -> Result<Self, Diagnostic> {
        match name {
            "sum" => Ok(Self::Sum),
            "prod" => Ok(Self::Prod),
            "min" => Ok(Self::Min),
            "max" => Ok(Self::Max),
            "avg" => Ok(Self::Avg),
            _ => Err(Diagnostic::new("AHBM-U203", format!("a plan cannot reduce with op {name:?}"))
                .hint("sum, prod, min, max and avg are supported")),
        }
    }

    /// The operation of one pair of elements.
    pub const fn function(self) -> BinaryFn {
        match self {
            Self::Sum | Self::Avg => BinaryFn::Add,
            Self::Prod => BinaryFn::Mul,
            Self::Min => BinaryFn::Min,
            Self::Max => BinaryFn::Max,
        }
    }
}

/// How a plan becomes a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LowerOptions {
    /// Bytes of the larger of input and output, the size by which runtimes select plans.
    pub bytes: u64,
    /// The same of the size for which the messages of a trace state theirs; 0 where that is not known.
    pub stated_bytes: u64,
    /// Element type.
    pub dtype: Dtype,
    /// Reduction operator.
    pub reduction: Reduction,
    /// Messages a queue holds; [`BY_PROTOCOL`] as the runtimes have it, `u32::MAX` is unbounded.
    pub slots: u32,
    /// Slot memory, an index into the machine's tiers.
    pub tier: u32,
    /// Size of a credit message.
    pub credit_bytes: u64,
    /// Parallel copies of the plan, each on its share of every chunk and on channels of its own.
    pub instances: u32,
    /// Replaces the plan's protocol.
    pub protocol: Option<Protocol>,
    /// Replaces the protocol's slice, and the runtimes' limit of chunks per message.
    pub slice_bytes: Option<u64>,
    /// The SIP of each rank; empty: rank r is on SIP r.
    pub sips: Vec<u32>,
    /// Bounds the operations of the program.
    pub budget: Budget,
}

impl LowerOptions {
    /// As many messages per queue as the runtimes have, in the machine's first tier, one instance, the plan's own protocol, sum.
    pub fn new(bytes: u64, dtype: Dtype) -> Self {
        Self {
            bytes,
            stated_bytes: 0,
            dtype,
            reduction: Reduction::Sum,
            slots: BY_PROTOCOL,
            tier: 0,
            credit_bytes: 16,
            instances: 1,
            protocol: None,
            slice_bytes: None,
            sips: Vec::new(),
            budget: Budget::default(),
        }
    }
}

/// The places of thread blocks: those of a rank are on its SIP's PEs in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The SIP of each rank.
    pub sips: Vec<u32>,
    /// Cubes per SIP.
    pub cubes: u32,
    /// PEs per cube.
    pub pes: u32,
}

/// Why `ranks` ranks cannot each have a SIP of their own among `have`.
fn misplaced(sips: &[u32], ranks: usize, have: usize) -> Option<String> {
    if ranks > have {
        return Some(format!("the machine has {have} SIPs"));
    }
    if sips.len() != ranks {
        return Some(format!("and {} SIPs are named for them", sips.len()));
    }
    let mut first = FxHashMap::default();
    sips.iter().enumerate().find_map(|(rank, &sip)| {
        if sip as usize >= have {
            return Some(format!("and rank {rank} is put on SIP {sip} of {have}"));
        }
        let other = first.insert(sip, rank)?;
        Some(format!("and ranks {other} and {rank} are put on SIP {sip}"))
    })
}

impl Site {
    /// The place of `ranks` ranks on a machine.
    ///
    /// # Errors
    /// `AHBM-U204` more ranks than the machine has SIPs, or other SIPs than it has.
    pub fn of(machine: &Machine, options: &LowerOptions, name: &str, ranks: usize) -> Result<Self, Diagnostic> {
        let sfr = machine.sfr();
        let sips: Vec<u32> = if options.sips.is_empty() { (0..ranks as u32).collect() } else { options.sips.clone() };
        if let Some(problem) = misplaced(&sips, ranks, sfr.sips as usize) {
            return Err(Diagnostic::new("AHBM-U204", format!("{name} has {ranks} ranks, one per SIP, {problem}"))
                .hint(format!("choose a topology with {ranks} SIPs, or set system.sips.count={ranks}")));
        }
        Ok(Self { sips, cubes: sfr.cubes(), pes: sfr.pes })
    }

    /// No machine: one PE per rank. Programs placed there can be checked, not timed.
    pub fn abstract_of(ranks: u32) -> Self {
        Self { sips: (0..ranks).collect(), cubes: 1, pes: 1 }
    }

    /// The PE of the `index`-th thread block of a rank.
    pub fn place(&self, rank: u32, index: u32) -> (Coord, PeId) {
        let slot = index % (self.cubes * self.pes).max(1);
        let sip = self.sips[rank as usize];
        let coord = Coord { sip, cube: slot / self.pes.max(1), pe: slot % self.pes.max(1) };
        (coord, PeId((sip * self.cubes + coord.cube) * self.pes + coord.pe))
    }
}
