//! Names of the machine's parts.

use std::fmt;

/// A processing element by flat index: `((sip * cubes_per_sip) + cube) * pes_per_cube + pe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeId(pub u32);

/// A directed link by index into the machine's link numbering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// The place of a PE, as a kernel sees it: SIP (rank), cube and PE within the cube.
///
/// Also used for *virtual* coordinates, where a launch renumbers the PEs it runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Coord {
    /// SIP index.
    pub sip: u32,
    /// Cube index inside the SIP, `row * cube_w + col`.
    pub cube: u32,
    /// PE index inside the cube.
    pub pe: u32,
}

impl fmt::Display for Coord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sip {} cube {} pe {}", self.sip, self.cube, self.pe)
    }
}

/// An end point of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A PE's own fast memory (TCM) and ports.
    Pe(PeId),
    /// The PE's slice of its cube's HBM.
    Hbm(PeId),
    /// The shared SRAM of the cube this PE sits in.
    Sram(PeId),
    /// The I/O chiplet of a SIP, where the host's traffic enters.
    Io(u32),
}

impl Node {
    /// The PE that it belongs to; none of an I/O chiplet.
    pub const fn pe(self) -> Option<PeId> {
        match self {
            Self::Pe(pe) | Self::Hbm(pe) | Self::Sram(pe) => Some(pe),
            Self::Io(_) => None,
        }
    }
}
