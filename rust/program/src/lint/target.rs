//! The facts about a machine that the checks need.

use ahbm_machine::{Coord, Machine, Node, PeId};

/// A machine as the checks see it.
pub(super) struct Target<'a> {
    /// Number of PEs.
    pub(super) pes: u64,
    /// Number of SIPs.
    pub(super) sips: u32,
    /// Capacity of a memory in bytes.
    pub(super) capacity: Box<dyn Fn(Node) -> u64 + 'a>,
    /// The first PE of the cube a PE sits in, which stands for the cube's shared memory.
    pub(super) cube: Box<dyn Fn(PeId) -> PeId + 'a>,
    /// Name of a slot tier.
    pub(super) tier: Box<dyn Fn(u32) -> Option<&'a str> + 'a>,
}

impl<'a> Target<'a> {
    pub(super) fn of(machine: &'a Machine) -> Self {
        let sfr = machine.sfr();
        let extents = [sfr.cube_w, sfr.cube_h, sfr.pes];
        Self {
            pes: extents.iter().fold(u64::from(sfr.sips), |n, &d| n.saturating_mul(d.into())),
            sips: sfr.sips,
            capacity: Box::new(|node| machine.memory_bytes(node)),
            cube: Box::new(|pe| machine.pe(Coord { pe: 0, ..machine.coord(pe) }).unwrap_or(pe)),
            tier: Box::new(|tier| machine.costs().tiers.get_index(tier as usize).map(|(name, _)| name.as_str())),
        }
    }

    /// One name per memory: every PE of a cube names the same SRAM.
    pub(super) fn memory(&self, node: Node) -> Node {
        match node {
            Node::Sram(pe) => Node::Sram((self.cube)(pe)),
            other => other,
        }
    }

    /// The memory of a receiver's slots; `None` for tiers that stand for no memory of the machine.
    pub(super) fn slots(&self, tier: u32, place: PeId) -> Option<Node> {
        match (self.tier)(tier)? {
            "tcm" => Some(Node::Pe(place)),
            "sram" => Some(self.memory(Node::Sram(place))),
            "hbm" => Some(Node::Hbm(place)),
            _ => None,
        }
    }
}
