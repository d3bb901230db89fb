//! The neighbour (SFR) tables: which PE is behind a direction, and by which direction it looks back.
//!
//! No table is stored: a neighbour is rank arithmetic on virtual coordinates.
//!
//! - Cube mesh: `cube = row * cube_w + col`; W is col - 1, E col + 1, N row - 1, S row + 1; it does not wrap.
//! - Ring: `global_E` is rank + 1, `global_W` rank - 1, both modulo the number of SIPs. With two SIPs both
//!   lead to the same peer and still stay two directions: E looks back by W, W by E.
//! - Grid: `rank = (z * h + y) * w + x`; E is x + 1, S is y + 1, D is z + 1; a torus wraps, and a dimension
//!   of extent 1 has no neighbours.
//! - Hypercube: `global_dim<k>` flips bit k of the rank and looks back by itself.
//! - Peer addresses work everywhere. Their canonical form states only the parts that differ, so both ends
//!   derive the same name for a queue.

use crate::{Coord, Direction, Heading};
use ahbm_findings::Diagnostic;

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
    /// A ring of `sips` one-cube, one-PE SIPs.
    pub fn ring(sips: u32) -> Self {
        Self { network: SipNetwork::Ring, sips, cube_w: 1, cube_h: 1, pes: 1 }
    }

    /// The same shape on another network.
    #[must_use]
    pub fn with_network(mut self, network: SipNetwork) -> Self {
        self.network = network;
        self
    }

    /// Cubes per SIP; shapes with more than `u32::MAX` count as that many and do not validate.
    pub fn cubes(&self) -> u32 {
        self.cube_w.saturating_mul(self.cube_h)
    }

    /// True when the coordinate exists in this shape.
    pub fn contains(&self, at: Coord) -> bool {
        at.sip < self.sips && at.cube < self.cubes() && at.pe < self.pes
    }

    /// The PE behind `direction` as seen from `at`, and the direction by which that PE looks back.
    ///
    /// `None` when nothing is there: the edge of an open mesh, a heading the network does not have,
    /// an index out of range, or the PE itself.
    pub fn neighbor(&self, at: Coord, direction: Direction) -> Option<(Coord, Direction)> {
        if !self.contains(at) {
            return None;
        }
        match direction {
            Direction::Cube(heading) => {
                let cube = self.cube_neighbor(at.cube, heading)?;
                Some((Coord { cube, ..at }, Direction::Cube(heading.opposite())))
            }
            Direction::Global(heading) => {
                let sip = self.sip_neighbor(at.sip, heading)?;
                Some((Coord { sip, ..at }, Direction::Global(heading.opposite())))
            }
            Direction::Dim(k) => {
                let SipNetwork::Hypercube { dims } = self.network else { return None };
                if u32::from(k) >= dims.min(32) {
                    return None;
                }
                let sip = at.sip ^ (1 << k);
                (sip < self.sips).then_some((Coord { sip, ..at }, direction))
            }
            // Plans connect their thread blocks themselves.
            Direction::Tag { .. } => None,
            Direction::Peer { .. } => {
                let peer = target(at, direction);
                (peer != at && self.contains(peer)).then(|| (peer, address(peer, at)))
            }
        }
    }

    /// The one spelling of a direction that both ends agree on: a peer address states only the parts
    /// that differ from `at`; every other direction is canonical already.
    pub fn canonical(&self, at: Coord, direction: Direction) -> Direction {
        match direction {
            Direction::Peer { .. } => address(at, target(at, direction)),
            other => other,
        }
    }

    /// Checks that the shape agrees with its network and that every direction of every class of PE
    /// (corner, edge, inside) leads back to where it came from.
    ///
    /// # Errors
    /// `AHBM-T014` names the first direction that does not.
    pub fn validate(&self) -> Result<(), Diagnostic> {
        let size = match self.network {
            SipNetwork::Grid { w, h, d, .. } => {
                Some((format!("{w} x {h} x {d}"), u128::from(w) * u128::from(h) * u128::from(d)))
            }
            SipNetwork::Hypercube { dims } => Some((format!("2^{dims}"), 1u128.checked_shl(dims).unwrap_or(u128::MAX))),
            _ => None,
        };
        if let Some((shape, product)) = size
            && product != u128::from(self.sips)
        {
            return Err(Diagnostic::new("AHBM-T014", format!("a {shape} network cannot hold {} SIPs", self.sips)));
        }
        if self.cube_w.checked_mul(self.cube_h).is_none() {
            return Err(Diagnostic::new("AHBM-T014", format!("too many cubes: {} x {}", self.cube_w, self.cube_h)));
        }
        if self.sips == 0 || self.cubes() == 0 || self.pes == 0 {
            return Err(Diagnostic::new("AHBM-T014", "a machine needs at least one SIP, one cube and one PE"));
        }
        for sip in samples(self.sips, self.sip_extents()) {
            for cube in samples(self.cubes(), [self.cube_w, self.cube_h, 1]) {
                for pe in [0, self.pes - 1] {
                    self.validate_at(Coord { sip, cube, pe })?;
                }
            }
        }
        Ok(())
    }

    fn validate_at(&self, at: Coord) -> Result<(), Diagnostic> {
        for direction in self.directions(at) {
            let Some((peer, back)) = self.neighbor(at, direction) else { continue };
            let expected = Some((at, self.canonical(at, direction)));
            if self.neighbor(peer, back) != expected {
                return Err(Diagnostic::new("AHBM-T014", "a direction does not lead back to where it came from")
                    .site(format!("{at} reaches {peer} by {direction}"), "")
                    .site(format!("{peer} looks back by {back}"), ""));
            }
        }
        Ok(())
    }

    /// The named directions that lead somewhere from `at`: cube mesh, then SIP grid, then hypercube
    /// dimensions. Peer addresses are not listed.
    pub fn named_directions(&self, at: Coord) -> Vec<Direction> {
        let mut found: Vec<_> =
            COMPASS.into_iter().map(Direction::Cube).chain(ALL.into_iter().map(Direction::Global)).collect();
        if let SipNetwork::Hypercube { dims } = self.network {
            found.extend((0..dims.min(32)).map(|k| Direction::Dim(k as u8)));
        }
        found.retain(|&direction| self.neighbor(at, direction).is_some());
        found
    }

    fn directions(&self, at: Coord) -> Vec<Direction> {
        let mut found = self.named_directions(at);
        let last = |count: u32, mine: u32| if mine + 1 == count { 0 } else { count - 1 };
        let (sip, cube, pe) =
            (Some(last(self.sips, at.sip)), Some(last(self.cubes(), at.cube)), Some(last(self.pes, at.pe)));
        for mask in 1..8u8 {
            found.push(Direction::Peer {
                sip: sip.filter(|_| mask & 1 != 0),
                cube: cube.filter(|_| mask & 2 != 0),
                pe: pe.filter(|_| mask & 4 != 0),
            });
        }
        found
    }

    fn sip_extents(&self) -> [u32; 3] {
        match self.network {
            SipNetwork::Grid { w, h, d, .. } => [w, h, d],
            _ => [self.sips, 1, 1],
        }
    }

    fn cube_neighbor(&self, cube: u32, heading: Heading) -> Option<u32> {
        let (row, col) = (cube / self.cube_w, cube % self.cube_w);
        match heading {
            Heading::N => (row > 0).then(|| cube - self.cube_w),
            Heading::S => cube.checked_add(self.cube_w).filter(|_| row + 1 < self.cube_h),
            Heading::W => (col > 0).then(|| cube - 1),
            Heading::E => (col + 1 < self.cube_w).then(|| cube + 1),
            Heading::U | Heading::D => None,
        }
    }

    fn sip_neighbor(&self, sip: u32, heading: Heading) -> Option<u32> {
        let (extents, wrap) = match self.network {
            SipNetwork::Ring => ([self.sips, 1, 1], true),
            SipNetwork::Grid { w, h, d, wrap } => ([w, h, d], wrap),
            _ => return None,
        };
        let (dim, forward) = match heading {
            Heading::E => (0, true),
            Heading::W => (0, false),
            Heading::S => (1, true),
            Heading::N => (1, false),
            Heading::D => (2, true),
            Heading::U => (2, false),
        };
        let extent = extents[dim];
        if extent < 2 {
            return None;
        }
        // Anyone can build an `Sfr`; a shape that `validate` refuses must not overflow here either.
        let stride = extents[..dim].iter().try_fold(1u32, |product, &e| product.checked_mul(e))?;
        let position = sip.checked_div(stride)? % extent;
        let next = match (forward, wrap) {
            (true, true) => {
                if position + 1 == extent {
                    0
                } else {
                    position + 1
                }
            }
            (false, true) => position.checked_sub(1).unwrap_or(extent - 1),
            (true, false) => (position + 1 < extent).then_some(position + 1)?,
            (false, false) => position.checked_sub(1)?,
        };
        let peer = (sip - position * stride).checked_add(next.checked_mul(stride)?)?;
        (peer < self.sips).then_some(peer)
    }
}

const COMPASS: [Heading; 4] = [Heading::N, Heading::S, Heading::E, Heading::W];
const ALL: [Heading; 6] = [Heading::N, Heading::S, Heading::E, Heading::W, Heading::U, Heading::D];

/// The PE a peer address names; parts left out are those of `at`.
fn target(at: Coord, direction: Direction) -> Coord {
    match direction {
        Direction::Peer { sip, cube, pe } => {
            Coord { sip: sip.unwrap_or(at.sip), cube: cube.unwrap_or(at.cube), pe: pe.unwrap_or(at.pe) }
        }
        _ => at,
    }
}

/// The canonical address of `to` as seen from `from`.
fn address(from: Coord, to: Coord) -> Direction {
    Direction::Peer {
        sip: (to.sip != from.sip).then_some(to.sip),
        cube: (to.cube != from.cube).then_some(to.cube),
        pe: (to.pe != from.pe).then_some(to.pe),
    }
}

/// One index of every class of position: first, second, middle and last along each dimension.
fn samples(count: u32, extents: [u32; 3]) -> Vec<u32> {
    let along = |extent: u32| [0, 1, extent / 2, extent.saturating_sub(1)].into_iter().filter(move |&i| i < extent);
    let mut found = Vec::new();
    for z in along(extents[2]) {
        for y in along(extents[1]) {
            for x in along(extents[0]) {
                let index =
                    (u64::from(z) * u64::from(extents[1]) + u64::from(y)) * u64::from(extents[0]) + u64::from(x);
                found.extend(u32::try_from(index).ok().filter(|&i| i < count));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
