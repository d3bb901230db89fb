//! The neighbour (SFR) tables: which PE is behind a direction, and by which direction it looks back.

use crate::{Coord, Diagnostic, Direction};

/// How SIPs are joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SipNetwork {
    /// A cycle; `global_E` leads to rank + 1.
    Ring,
    /// A grid of up to three dimensions. Rank = (z * h + y) * w + x.
    Grid {
        /// Extent along E/W.
        w: u32,
        /// Extent along N/S.
        h: u32,
        /// Extent along U/D; 1 for two-dimensional networks.
        d: u32,
        /// Torus (true) or mesh (false).
        wrap: bool,
    },
    /// 2^dims SIPs.
    Hypercube {
        /// Number of dimensions.
        dims: u32,
    },
    /// Every pair has a link.
    FullyConnected,
    /// All SIPs hang on one switch.
    Switch,
    /// A declared edge list.
    Custom,
}

/// The shape of a launch: pure rank arithmetic, no hardware.
///
/// Coordinates are *virtual*: a lane of a sharded host tensor, a process group or the legacy flat-PE
/// mode each use an `Sfr` of their own shape and map its coordinates onto physical PEs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sfr {
    /// Network between SIPs.
    pub network: SipNetwork,
    /// Number of SIPs.
    pub sips: u32,
    /// Cube mesh width.
    pub cube_w: u32,
    /// Cube mesh height.
    pub cube_h: u32,
    /// PEs per cube.
    pub pes: u32,
}

impl Sfr {
    /// The PE behind `direction` as seen from `at`, and the direction by which that PE looks back.
    ///
    /// `None` when nothing is there: the edge of an open mesh, a heading the network does not have,
    /// an index out of range, or the PE itself.
    pub fn neighbor(&self, at: Coord, direction: Direction) -> Option<(Coord, Direction)> {
        let _ = (at, direction);
        todo!()
    }

    /// The one spelling of a direction: peer addresses keep only the parts that differ from `at`.
    pub fn canonical(&self, at: Coord, direction: Direction) -> Direction {
        let _ = at;
        direction
    }

    /// Checks that every direction of every PE class leads back to where it came from.
    pub fn validate(&self) -> Result<(), Diagnostic> {
        todo!()
    }
}
