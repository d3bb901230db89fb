//! The built-in algorithms that send and receive in rounds: ring, direct, halving-doubling.
//!
//! A machine is told that it starts, that a message has come, or that a pass over the bus is over, and answers with
//! passes to begin and messages to exchange. Packets wait in the order of their passes; a packet leaves when a pass has
//! ended that nobody has used. Which passes reduce follows from their number: `first` that do not, `rest` that do where
//! the operation reduces, and so on by turns.

use crate::config::Native;

/// What a phase of a collective does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Op {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
}

/// The partners of a rank in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ring {
    /// Number of ranks.
    pub(super) size: u32,
    /// Place of this rank.
    pub(super) place: u32,
    /// Where the ranks are.
    pub(super) members: Members,
}

/// The ranks of a phase by their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Members {
    /// `first + place * stride`.
    Strided { first: u32, stride: u32 },
    /// As a group lists them: its position among the groups.
    Group(u32),
}

/// A packet: how many places ahead its receiver and its sender are, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) to: u32,
    pub(super) from: u32,
    pub(super) bytes: u64,
}

/// The state of an algorithm at a rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    op: Op,
    kind: Kind,
    size: u32,
    place: u32,
    /// Upwards, as places count; else downwards.
    forth: bool,
    /// Packets that have not left, of those that will.
    left: u64,
    /// Packets that passes have begun for, that have left; receipts; passes that nobody has used.
    begun: u64,
    sent: u64,
    received: u64,
    free: u64,
    /// Passes at a time.
    width: u64,
    /// Passes that do not reduce, then those that do.
    first: u64,
    rest: u64,
    reduces: bool,
    bytes: u64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Ring,
    Direct {
        local: bool,
    },
    Halving {
        /// Distance and size of the next packet; whether they grow towards the far end.
        distance: u32,
        bytes: u64,
        outwards: bool,
        /// The packet whose pass runs.
        packet: Packet,
    },
}

impl Exchange {
    /// The machine of an algorithm, and the bytes that a rank has afterwards; nothing where the simulator has none for
    /// the operation. `local` is a group that is not the world.
    pub(super) fn new(native: Native, op: Op, ring: &Ring, forth: bool, local: bool, bytes: u64) -> Option<Self> {
        let (n, others) = (u64::from(ring.size), u64::from(ring.size) - 1);
        let part = if op == Op::AllGather { bytes } else { bytes / n };
        let mut machine = Self {
            op,
            kind: Kind::Ring,
            size: ring.size,
            place: ring.place,
            forth,
            left: match op {
                Op::AllReduce => 2 * others,
                Op::AllGather | Op::ReduceScatter => others,
                Op::AllToAll => n * others / 2,
            },
            begun: 0,
            sent: 0,
            received: 0,
            free: 0,
            width: 1,
            first: 0,
            rest: 0,
            reduces: false,
            bytes: part,
        };
        match native {
            Native::Ring => {}
            Native::Direct(window) => {
                machine.kind = Kind::Direct { local };
                machine.width = window.map_or(others, |window| u64::from(window).min(others));
                if op == Op::AllToAll {
                    machine.left = others;
                }
            }
            Native::HalvingDoubling => {
                let levels = f64::from(ring.size).log2();
                machine.left = match op {
                    Op::AllReduce => (2.0 * levels) as u64,
                    Op::AllGather | Op::ReduceScatter => levels as u64,
                    Op::AllToAll => return None,
                };
                let (distance, bytes, outwards) =
                    if op == Op::AllGather { (ring.size / 2, bytes, false) } else { (1, bytes / 2, true) };
                let packet = Packet { to: 0, from: 0, bytes: 0 };
                machine.kind = Kind::Halving { distance, bytes, outwards, packet };
            }
            Native::DoubleBinaryTree => return None,
        }
        Some(machine)
    }

    /// Starts: so many passes begin.
    pub(super) fn start(&self) -> u64 {
        self.width
    }

    /// A message has come; a pass begins. True where it reduces.
    pub(super) fn receive(&mut self) -> bool {
        self.received += 1;
        self.begin()
    }

    /// A packet is made, and its pass begins. True where it reduces.
    pub(super) fn begin(&mut self) -> bool {
        if self.first == 0 && self.rest == 0 {
            self.first = self.width;
            let others = u64::from(self.size) - 1;
            self.rest = match self.kind {
                Kind::Ring => others * self.width,
                Kind::Direct { local: false } => self.width,
                Kind::Direct { local: true } => others * self.width,
                Kind::Halving { .. } => u64::from(self.size.ilog2()) - 1,
            };
            self.reduces = !self.reduces;
        }
        let reduces = if self.first > 0 {
            self.first -= 1;
            false
        } else {
            self.rest -= 1;
            match self.op {
                Op::ReduceScatter => true,
                Op::AllReduce => self.reduces,
                Op::AllGather | Op::AllToAll => false,
            }
        };
        self.begun += 1;
        self.advance();
        reduces
    }

    /// Halving-doubling makes its packet and goes on to its next distance.
    fn advance(&mut self) {
        let (size, place, op) = (self.size, self.place, self.op);
        let Kind::Halving { distance, bytes, outwards, packet } = &mut self.kind else { return };
        let up = *distance == 0 || place / *distance % 2 == 0;
        let ahead = if up { *distance % size } else { (size - *distance % size) % size };
        *packet = Packet { to: ahead, from: ahead, bytes: *bytes };
        let grow = |outwards: bool, distance: &mut u32, bytes: &mut u64| {
            if outwards {
                *distance = distance.saturating_mul(2);
                *bytes /= 2;
            } else {
                *distance /= 2;
                *bytes = bytes.saturating_mul(2);
            }
        };
        grow(*outwards, distance, bytes);
        if *distance == size && op == Op::AllReduce {
            *outwards = false;
            grow(false, distance, bytes);
        }
    }

    /// A pass is over: how many packets may leave now, by [`Exchange::leave`].
    pub(super) fn passed(&mut self) -> u64 {
        self.free += 1;
        let others = u64::from(self.size) - 1;
        if matches!(self.kind, Kind::Direct { .. }) && self.op == Op::AllReduce && self.left <= others {
            if self.received < others {
                return 0;
            }
            return self.width;
        }
        1
    }

    /// The next packet leaves, if one waits and may.
    pub(super) fn leave(&mut self) -> Option<Packet> {
        if self.begun == self.sent || self.left == 0 || self.free == 0 {
            return None;
        }
        let packet = match self.kind {
            Kind::Ring => Packet { to: self.ahead(1), from: self.behind(1), bytes: self.bytes },
            Kind::Direct { .. } => {
                // Successor by successor, leaving itself out.
                let steps = (self.sent % (u64::from(self.size) - 1)) as u32 + 1;
                Packet { to: self.ahead(steps), from: self.behind(steps), bytes: self.bytes }
            }
            Kind::Halving { packet, .. } => packet,
        };
        self.left -= 1;
        self.sent += 1;
        self.free -= 1;
        Some(packet)
    }

    fn ahead(&self, steps: u32) -> u32 {
        if self.forth { steps } else { self.size - steps }
    }

    fn behind(&self, steps: u32) -> u32 {
        if self.forth { self.size - steps } else { steps }
    }

    /// Bytes that the pass that runs reduces.
    pub(super) fn reduced(&self) -> u64 {
        match self.kind {
            Kind::Halving { packet, .. } => packet.bytes,
            Kind::Ring | Kind::Direct { .. } => self.bytes,
        }
    }

    /// True when everything has been sent and every receipt has been passed on.
    pub(super) fn done(&self) -> bool {
        self.left == 0 && self.free == self.width
    }
}

/// What a rank has after a phase that began with `bytes`.
pub(super) fn result(native: Native, op: Op, size: u32, bytes: u64) -> u64 {
    match (native, op) {
        (Native::DoubleBinaryTree, _) | (_, Op::AllReduce | Op::AllToAll) => bytes,
        (_, Op::AllGather) => bytes.saturating_mul(size.into()),
        (_, Op::ReduceScatter) => bytes / u64::from(size),
    }
}
