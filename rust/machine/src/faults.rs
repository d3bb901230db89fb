//! Faults on demand: slow, late and dead links, slow PEs, jitter. A machine without any pays nothing for them.

use crate::custom::Custom;
use crate::{LinkId, PeId, Ps, Rate};
use std::sync::Arc;

/// A change of one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkChange {
    /// Twice the bandwidth.
    Twice,
    /// No latency.
    Instant,
}

/// The fault of a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkFault {
    /// Its bandwidth is divided by this.
    pub(crate) slowdown: Option<f64>,
    /// Then it is doubled so many times.
    pub(crate) doubled: u32,
    /// Latency on top of its own.
    pub(crate) late_ps: Ps,
    /// It has no latency at all.
    pub(crate) instant: bool,
    pub(crate) dead: bool,
}

/// Everything that is wrong with a machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// Sorted by link.
    pub(crate) links: Vec<(LinkId, LinkFault)>,
    /// Thousandths of the time that the work of a PE takes, sorted by PE.
    pub(crate) paces: Vec<(PeId, u32)>,
    /// The links between SIPs that are left, and their numbers; only when some are dead.
    pub(crate) left: Option<Arc<(Custom, Vec<u32>)>>,
}

/// Work at full speed, in thousandths.
pub const FULL_PACE: u32 = 1000;

impl LinkFault {
    pub(crate) const NONE: Self = Self { slowdown: None, doubled: 0, late_ps: 0, instant: false, dead: false };

    /// The bandwidth of a link whose own is `rate`.
    pub(crate) fn rate(&self, rate: Rate) -> Rate {
        let slower = |by: f64| Rate::from_gbs(rate.gbs() / by.max(1.0)).unwrap_or(rate);
        let slow = self.slowdown.map_or(rate, slower);
        (0..self.doubled).fold(slow, |rate, _| Rate::from_gbs(2.0 * rate.gbs()).unwrap_or(rate))
    }
}

impl Faults {
    pub(crate) fn is_none(&self) -> bool {
        self.links.is_empty() && self.paces.is_empty() && self.left.is_none()
    }

    pub(crate) fn on(&self, link: LinkId) -> Option<&LinkFault> {
        let at = self.links.binary_search_by_key(&link, |fault| fault.0).ok()?;
        Some(&self.links[at].1)
    }

    /// The latency of a link whose own is `own`.
    pub(crate) fn latency(&self, link: LinkId, own: Ps) -> Ps {
        match self.on(link) {
            Some(fault) if fault.instant => 0,
            Some(fault) => own + fault.late_ps,
            None => own,
        }
    }

    /// Changes a link.
    pub(crate) fn change(&mut self, link: LinkId, change: LinkChange) {
        let at = self.links.binary_search_by_key(&link, |fault| fault.0).unwrap_or_else(|at| {
            self.links.insert(at, (link, LinkFault::NONE));
            at
        });
        match change {
            LinkChange::Twice => self.links[at].1.doubled += 1,
            LinkChange::Instant => self.links[at].1.instant = true,
        }
    }

    /// True when one of these links has a fault.
    pub(crate) fn among(&self, links: std::ops::Range<LinkId>) -> bool {
        let next = self.links.partition_point(|fault| fault.0 < links.start);
        self.links.get(next).is_some_and(|fault| fault.0 < links.end)
    }

    pub(crate) fn dead(&self, link: LinkId) -> bool {
        self.on(link).is_some_and(|fault| fault.dead)
    }

    pub(crate) fn pace(&self, pe: PeId) -> u32 {
        self.paces.binary_search_by_key(&pe, |entry| entry.0).map_or(FULL_PACE, |at| self.paces[at].1)
    }

    /// A way from SIP to SIP over links that are left, by link number.
    pub(crate) fn detour(&self, from: u32, to: u32) -> Option<Vec<u32>> {
        let (left, numbers) = self.left.as_deref()?;
        Some(left.path(from, to)?.into_iter().map(|edge| numbers[edge as usize]).collect())
    }
}
