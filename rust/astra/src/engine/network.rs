//! Delays and links: how long a message takes, and in which order messages leave a link.

use crate::config::{Backend, Dimension, Shape};
use ahbm_findings::Diagnostic;

/// Most links of a network.
const MAX_LINKS: u64 = 1 << 24;

/// The place of a message on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    /// The NPU that it is at, or whose place in its dimension is that of the switch.
    pub(super) at: u32,
    /// The dimension in whose switch it is.
    pub(super) switch: Option<u8>,
}

/// A directed link.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Link {
    /// Carries a message.
    pub(super) busy: bool,
    /// First and last of the messages that wait, linked through their `next`; [`NONE`] where none does.
    pub(super) head: u32,
    pub(super) tail: u32,
    /// Bytes carried so far.
    pub(super) bytes: u64,
}

/// No message.
pub(super) const NONE: u32 = u32::MAX;

/// The network.
#[derive(Debug)]
pub(super) struct Network {
    dimensions: Vec<Level>,
    /// Links, dimension by dimension; empty where messages do not share any.
    pub(super) links: Vec<Link>,
}

/// A dimension as the engine needs it.
#[derive(Debug, Clone, Copy)]
struct Level {
    shape: Shape,
    npus: u32,
    /// Difference of the numbers of neighbouring NPUs.
    stride: u32,
    bytes_per_ns: f64,
    latency: f64,
    /// First of its links.
    first: u32,
}

impl Level {
    fn place(&self, npu: u32) -> u32 {
        // The lowest dimension, and the only one, need not divide; every message asks several times.
        let above = if self.stride == 1 { npu } else { npu / self.stride };
        if above < self.npus { above } else { above % self.npus }
    }

    /// Links per NPU.
    fn links(&self) -> u64 {
        match self.shape {
            Shape::Ring | Shape::Switch => 2,
            Shape::FullyConnected => self.npus.into(),
        }
    }
}

impl Network {
    /// # Errors
    /// `AHBM-B213` too many links.
    pub(super) fn new(dimensions: &[Dimension], backend: Backend) -> Result<Self, Diagnostic> {
        let world: u64 = dimensions.iter().map(|dimension| u64::from(dimension.npus)).product();
        let mut stride = 1;
        let mut links = 0u64;
        let mut levels = Vec::new();
        for dimension in dimensions {
            let level = Level {
                shape: dimension.shape,
                npus: dimension.npus,
                stride,
                bytes_per_ns: dimension.bytes_per_ns(),
                latency: dimension.latency,
                first: links as u32,
            };
            stride *= dimension.npus;
            links += world * level.links();
            if backend == Backend::CongestionAware && links > MAX_LINKS {
                let what = format!("the network has more than {MAX_LINKS} links");
                return Err(Diagnostic::new("AHBM-B213", what).hint("the back-end congestion_unaware needs none"));
            }
            levels.push(level);
        }
        let links = match backend {
            Backend::CongestionUnaware => Vec::new(),
            Backend::CongestionAware => vec![Link { head: NONE, tail: NONE, ..Link::default() }; links as usize],
        };
        Ok(Self { dimensions: levels, links })
    }

    /// The first dimension in which two NPUs differ.
    pub(super) fn dimension(&self, src: u32, dst: u32) -> Option<usize> {
        self.dimensions.iter().position(|level| level.place(src) != level.place(dst))
    }

    /// Every dimension in which two NPUs differ.
    pub(super) fn differing(&self, src: u32, dst: u32) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.dimensions.len()).filter(move |&at| self.dimensions[at].place(src) != self.dimensions[at].place(dst))
    }

    /// Time of a message that meets no other, in ns: of the first dimension in which the NPUs differ alone.
    pub(super) fn delay(&self, src: u32, dst: u32, bytes: u64) -> u64 {
        let Some(level) = self.dimension(src, dst).map(|at| &self.dimensions[at]) else { return 0 };
        let hops = match level.shape {
            Shape::Ring => {
                let forth = (level.place(dst) + level.npus - level.place(src)) % level.npus;
                forth.min(level.npus - forth)
            }
            Shape::Switch => 2,
            Shape::FullyConnected => 1,
        };
        (f64::from(hops) * level.latency + bytes as f64 / level.bytes_per_ns) as u64
    }

    /// The next link of a message and where that leads; nothing at its destination.
    pub(super) fn hop(&self, way: Way, dst: u32) -> Option<(u32, Way)> {
        let dimension = match way.switch {
            Some(dimension) => usize::from(dimension),
            None => self.dimension(way.at, dst)?,
        };
        let level = &self.dimensions[dimension];
        let (from, to) = (level.place(way.at), level.place(dst));
        let moved = |place: u32| way.at - from * level.stride + place * level.stride;
        let (npu, port, next) = match level.shape {
            Shape::Ring => {
                let forth = (to + level.npus - from) % level.npus;
                if forth <= level.npus - forth {
                    (way.at, 0, Way { at: moved((from + 1) % level.npus), switch: None })
                } else {
                    (way.at, 1, Way { at: moved((from + level.npus - 1) % level.npus), switch: None })
                }
            }
            Shape::Switch if way.switch.is_none() => (way.at, 0, Way { at: way.at, switch: Some(dimension as u8) }),
            Shape::Switch => (moved(to), 1, Way { at: moved(to), switch: None }),
            Shape::FullyConnected => (way.at, to, Way { at: moved(to), switch: None }),
        };
        Some((level.first + npu * level.links() as u32 + port, next))
    }

    /// Times in ns after which a message has landed, and after which its link is free.
    pub(super) fn times(&self, link: u32, bytes: u64) -> (u64, u64) {
        let level = &self.dimensions[self.dimension_of(link)];
        let carried = bytes as f64 / level.bytes_per_ns;
        ((level.latency + carried) as u64, carried as u64)
    }

    /// The dimension of a link.
    pub(super) fn dimension_of(&self, link: u32) -> usize {
        self.dimensions.iter().rposition(|level| level.first <= link).unwrap_or(0)
    }

    /// The two ends of a link in words.
    pub(super) fn name(&self, link: u32) -> (String, String) {
        let level = &self.dimensions[self.dimension_of(link)];
        let (npu, port) = ((link - level.first) / level.links() as u32, (link - level.first) % level.links() as u32);
        let from = level.place(npu);
        let moved = |place: u32| (npu - from * level.stride + place * level.stride).to_string();
        match (level.shape, port) {
            (Shape::Ring, 0) => (npu.to_string(), moved((from + 1) % level.npus)),
            (Shape::Ring, _) => (npu.to_string(), moved((from + level.npus - 1) % level.npus)),
            (Shape::Switch, 0) => (npu.to_string(), "switch".to_owned()),
            (Shape::Switch, _) => ("switch".to_owned(), npu.to_string()),
            (Shape::FullyConnected, to) => (npu.to_string(), moved(to)),
        }
    }
}
