//! Which end of a channel a signal arrives at.

use super::schema::{Gpu, Kind};
use rustc_hash::FxHashMap;

/// Ends of all memory and port channels, numbered over all ranks.
pub(super) struct Ends {
    /// Per rank and kind: its ends by channel id.
    ids: Vec<[Vec<u32>; 2]>,
    /// The other end; `None` where the peer has too few channels.
    partner: Vec<Option<u32>>,
}

impl Ends {
    /// The k-th channel from a to b is one with the k-th from b to a, per kind.
    pub(super) fn of(gpus: &[Gpu<'_>]) -> Self {
        let mut ids: Vec<[Vec<u32>; 2]> = Vec::with_capacity(gpus.len());
        let mut by_pair: FxHashMap<(usize, u32, u32), Vec<u32>> = FxHashMap::default();
        let mut identity = Vec::new();
        for (rank, gpu) in gpus.iter().enumerate() {
            let mut own: [Vec<u32>; 2] = Default::default();
            for channel in &gpu.channels {
                let Some(kind) = slot(channel.channel_type) else { continue };
                for &peer in &channel.connected_to {
                    let end = identity.len() as u32;
                    let list = by_pair.entry((kind, rank as u32, peer)).or_default();
                    identity.push((kind, rank as u32, peer, list.len()));
                    list.push(end);
                    own[kind].push(end);
                }
            }
            ids.push(own);
        }
        let other = |&(kind, from, to, k): &(usize, u32, u32, usize)| by_pair.get(&(kind, to, from))?.get(k).copied();
        Self { ids, partner: identity.iter().map(other).collect() }
    }

    pub(super) fn len(&self) -> u32 {
        self.partner.len() as u32
    }

    /// A rank's own end of a channel.
    pub(super) fn own(&self, rank: u32, kind: Kind, id: u32) -> Option<u32> {
        self.ids[rank as usize][slot(kind)?].get(id as usize).copied()
    }

    /// The end that a signal on `own` arrives at.
    pub(super) fn other(&self, own: u32) -> Option<u32> {
        self.partner[own as usize]
    }
}

fn slot(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Memory => Some(0),
        Kind::Port => Some(1),
        Kind::Switch | Kind::None => None,
    }
}
