//! Faults on demand: slow, late and dead links, slow PEs, jitter. A machine without any pays nothing for them.

use crate::cube_links::CubeLink;
use crate::custom::{Custom, CustomEdge, Wire};
use crate::declared::{Reader, Topology};
use crate::{Coord, Heading, LinkChange, LinkId, Machine, PeId, Ps, Rate};
use std::collections::VecDeque;

/// Random delays. Each depends on the seed and on what is delayed alone, never on times, so a machine that is quicker
/// elsewhere has the same delays; and a delay grows with its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Jitter {
    /// Chooses among the delays.
    pub seed: u64,
    /// A message arrives up to so much later, in ps.
    pub latency_ps: Ps,
    /// A PE starts up to so much later than the launch, in ps.
    pub skew_ps: Ps,
}

impl Jitter {
    /// How much later message `number` of stream `stream` arrives.
    #[inline]
    pub fn latency(&self, stream: u32, number: u32) -> Ps {
        self.draw(u64::from(stream) << 1, number, self.latency_ps)
    }

    /// How much later a PE starts.
    pub fn skew(&self, pe: PeId) -> Ps {
        self.draw(1, pe.0, self.skew_ps)
    }

    /// 0 to `limit`: SplitMix64 over the seed and two coordinates (Steele, Lea, Flood 2014), scaled.
    fn draw(&self, a: u64, b: u32, limit: Ps) -> Ps {
        if limit == 0 {
            return 0;
        }
        let gamma = 0x9e37_79b9_7f4a_7c15;
        let place = a.wrapping_add(1).wrapping_mul(gamma) ^ u64::from(b).wrapping_mul(0xd1b5_4a32_d192_ed03);
        let mixed = self.seed.wrapping_mul(gamma) ^ place;
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = mixed ^ (mixed >> 31);
        ((u128::from(drawn) * (u128::from(limit) + 1)) >> u64::BITS) as Ps
    }
}

/// The fault of a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkFault {
    /// Its bandwidth is divided by this.
    slowdown: Option<f64>,
    /// Then it is doubled so many times.
    doubled: u32,
    /// Latency on top of its own.
    late_ps: Ps,
    /// It has no latency at all.
    instant: bool,
    pub(crate) dead: bool,
}

/// Everything that is wrong with a machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// Sorted by link.
    links: Vec<(LinkId, LinkFault)>,
    /// Thousandths of the time that the work of a PE takes, sorted by PE.
    paces: Vec<(PeId, u32)>,
    /// The links between SIPs that are left, and their numbers; only when some are dead.
    left: Option<(Custom, Vec<u32>)>,
}

/// Work at full speed, in thousandths.
pub const FULL_PACE: u32 = 1000;

impl LinkFault {
    const NONE: Self = Self { slowdown: None, doubled: 0, late_ps: 0, instant: false, dead: false };

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
        let (left, numbers) = self.left.as_ref()?;
        Some(left.path(from, to)?.into_iter().map(|edge| numbers[edge as usize]).collect())
    }

    /// Names of the dead links, for errors.
    pub(crate) fn dead_links(&self, machine: &Machine) -> String {
        let dead: Vec<String> =
            self.links.iter().filter(|(_, fault)| fault.dead).map(|&(link, _)| machine.link_name(link)).collect();
        let more = if dead.len() > 4 { format!(" and {} more", dead.len() - 4) } else { String::new() };
        dead[..dead.len().min(4)].join(", ") + &more
    }

    /// Finds the links and PEs that are declared to be at fault.
    pub(crate) fn of(machine: &Machine, declared: &Topology, reader: &mut Reader<'_>) -> Self {
        let mut faults = Self::default();
        for (index, fault) in declared.faults.links.iter().enumerate() {
            let path = format!("faults.links.{index}");
            let mut missing = |message: String| {
                let hint =
                    "give `from` and `to`: two SIPs that a link joins, or with `sip` two neighbouring cubes of it";
                reader.report_paths(&[&path], "AHBM-T017", message, hint);
            };
            let (Some(from), Some(to)) = (fault.from, fault.to) else {
                missing("a faulty link needs both ends".to_owned());
                continue;
            };
            let ways = if fault.bidirectional { vec![(from.0, to.0), (to.0, from.0)] } else { vec![(from.0, to.0)] };
            for (from, to) in ways {
                let links = match fault.sip {
                    Some(sip) => machine.port_links(sip.0, from, to),
                    None => machine
                        .sips
                        .direct(from, to)
                        .map(|index| LinkId(machine.sip_base + index))
                        .into_iter()
                        .collect(),
                };
                if links.is_empty() {
                    let (what, whose) = match fault.sip {
                        Some(sip) => ("cube", format!(" of SIP {}", sip.0)),
                        None => ("SIP", String::new()),
                    };
                    missing(format!("there is no link from {what} {from} to {what} {to}{whose}"));
                    break;
                }
                for link in links {
                    let (slowdown, late_ps) = (Some(fault.slowdown.0), fault.extra_latency_ns.0);
                    faults.links.push((link, LinkFault { slowdown, late_ps, dead: fault.dead, ..LinkFault::NONE }));
                }
            }
            if fault.slowdown.0 < 1.0 {
                let message = format!("a slowdown of {} is none", fault.slowdown.0);
                reader.report_paths(&[&path], "AHBM-T017", message, "a slowdown of 2 halves the bandwidth");
            }
        }
        for (index, slow) in declared.faults.stragglers.iter().enumerate() {
            let path = format!("faults.stragglers.{index}");
            let at = Coord { sip: slow.sip.0, cube: slow.cube.0, pe: slow.pe.0 };
            match machine.pe(at) {
                Some(pe) if (1.0..=1000.0).contains(&slow.slowdown.0) => {
                    faults.paces.push((pe, (slow.slowdown.0 * f64::from(FULL_PACE)).round() as u32));
                }
                Some(_) => {
                    let message = format!("a slowdown of {} is out of range", slow.slowdown.0);
                    reader.report_paths(&[&path], "AHBM-T017", message, "a slowdown is 1 to 1000");
                }
                None => reader.report_paths(
                    &[&path],
                    "AHBM-T017",
                    format!("there is no PE {at}"),
                    "SIPs, cubes and PEs are counted from 0",
                ),
            }
        }
        faults.links.sort_by_key(|fault| fault.0);
        faults.paces.sort_by_key(|entry| entry.0);
        let twice = faults.links.windows(2).find(|w| w[0].0 == w[1].0).map(|w| machine.link_name(w[0].0));
        let slow_twice = faults.paces.windows(2).find(|w| w[0].0 == w[1].0).map(|w| machine.coord(w[0].0).to_string());
        if let Some(name) = twice.or(slow_twice) {
            let hint = "a faulty link is bidirectional unless it says `bidirectional: false`";
            reader.report_paths(&["faults"], "AHBM-T017", format!("{name} is declared twice"), hint);
        }
        if faults.links.iter().any(|(link, fault)| fault.dead && link.0 >= machine.sip_base) {
            faults.left = Some(left(machine, &faults));
        }
        faults
    }
}

/// The network between SIPs (switch and relays are nodes, too) without its dead links.
fn left(machine: &Machine, faults: &Faults) -> (Custom, Vec<u32>) {
    let alive = |index: &u32| !faults.dead(LinkId(machine.sip_base + index));
    let mut numbers: Vec<u32> = (0..machine.sips.links()).filter(alive).collect();
    let ends = |&index: &u32| machine.sips.link(index).map_or((0, 0), |link| (link.from, link.to));
    numbers.sort_by_key(|index| (ends(index), *index));
    let edge = |&index: &u32| {
        let link = machine.sips.link(index)?;
        let latency_ps = faults.latency(LinkId(machine.sip_base + index), link.latency_ps);
        Some(CustomEdge { from: link.from, to: link.to, wire: Wire::Own(link.rate), latency_ps })
    };
    (Custom::new(machine.sips.vertices(), numbers.iter().filter_map(edge).collect()), numbers)
}

impl Machine {
    /// All connections of the port of a cube towards a neighbour; none when they are no neighbours.
    fn port_links(&self, sip: u32, from: u32, to: u32) -> Vec<LinkId> {
        let neighbours = || Heading::MESH.into_iter().filter_map(|port| Some((port, self.cube_at(from, port)?)));
        let on_machine = sip < self.sfr.sips && from < self.sfr.cubes();
        let port = neighbours().filter(|_| on_machine).find(|&(_, cube)| cube == to);
        let base = (sip * self.sfr.cubes() + from) * self.cube.links();
        let link = |port, connection| LinkId(base + self.cube.index(CubeLink::Ucie(port, connection)));
        port.into_iter()
            .flat_map(|(port, _)| (0..self.cube.connections).map(move |connection| link(port, connection)))
            .collect()
    }

    /// The cube behind a port.
    pub(crate) fn cube_at(&self, cube: u32, port: Heading) -> Option<u32> {
        let (w, h) = (self.sfr.cube_w, self.sfr.cube_h);
        let (row, col) = (cube / w, cube % w);
        match port {
            Heading::N => (row > 0).then(|| cube - w),
            Heading::E => (col + 1 < w).then(|| cube + 1),
            Heading::S => (row + 1 < h).then(|| cube + w),
            Heading::W => (col > 0).then(|| cube - 1),
            Heading::U | Heading::D => None,
        }
    }

    pub(crate) fn port_is_dead(&self, sip: u32, cube: u32, port: Heading) -> bool {
        let base = (sip * self.sfr.cubes() + cube) * self.cube.links();
        self.faults.dead(LinkId(base + self.cube.index(CubeLink::Ucie(port, 0))))
    }

    /// The shortest way through a SIP's cube mesh that uses no dead port; among equals the one that prefers N, E, S, W
    /// in this order.
    pub(crate) fn cubes_around(&self, sip: u32, from: u32, to: u32) -> Option<Vec<Heading>> {
        let mut entry: Vec<Option<(u32, Heading)>> = vec![None; self.sfr.cubes() as usize];
        let mut queue = VecDeque::from([from]);
        while let Some(cube) = queue.pop_front() {
            for port in Heading::MESH {
                let Some(next) = self.cube_at(cube, port) else { continue };
                if next != from && entry[next as usize].is_none() && !self.port_is_dead(sip, cube, port) {
                    entry[next as usize] = Some((cube, port));
                    queue.push_back(next);
                }
            }
        }
        let (mut ways, mut at) = (Vec::new(), to);
        while at != from {
            let (before, port) = entry[at as usize]?;
            ways.push(port);
            at = before;
        }
        ways.reverse();
        Some(ways)
    }
}
