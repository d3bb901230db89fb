//! The network between the SIPs of a machine, in numbers that tell one network from another.

use ahbm_machine::{Machine, Ps, SipLink, SipNetwork};
use std::collections::VecDeque;

/// SIPs from which the longest way is searched, and from which halves of a declared network start.
const STARTS: u32 = 1024;

/// The network between SIPs; dead links are none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fingerprint {
    /// SIPs.
    pub ranks: u32,
    /// Cubes of a SIP.
    pub cubes: u32,
    /// PEs of a cube.
    pub pes: u32,
    /// Directed links.
    pub links: u32,
    /// Fewest and most links that leave a SIP.
    pub degree: [u32; 2],
    /// Links of the longest shortest way between two SIPs, those to and from a switch or a relay counted each; where
    /// there are more than 1,024 SIPs, of the ways from the first so many.
    pub diameter: u32,
    /// Fewest links that leave a half of the SIPs, of the halves that are looked at: the first half by number, a half of
    /// each dimension of a grid, and in a declared network the half that is nearest to each SIP.
    pub bisection_links: u32,
    /// Their bandwidth.
    pub bisection_gbs: f64,
    /// Extents that are more than 1: of a grid, 2 for each of a hypercube, of any other network its SIPs.
    pub dimensions: Vec<u32>,
    /// Least, median and most latency of a link; the time through a switch is added to the links that leave it.
    pub latency_ps: [Ps; 3],
    /// Least, median and most bandwidth of a link in GB/s.
    pub bandwidth_gbs: [f64; 3],
}

impl Fingerprint {
    /// Reads it off a machine. Without links, all numbers of links are 0.
    pub fn of(machine: &Machine) -> Self {
        let sfr = machine.sfr();
        let links: Vec<SipLink> = machine.links_between_sips().collect();
        let network = Network::of(sfr.sips, machine.relays(), &links);
        let mut degrees = vec![0u32; sfr.sips as usize];
        for link in links.iter().filter(|link| link.from < sfr.sips) {
            degrees[link.from as usize] += 1;
        }
        let switched = sfr.network == SipNetwork::Switch;
        let through = |link: &SipLink| if switched && link.from >= sfr.sips { machine.switch_ps() } else { 0 };
        let latencies = quantiles(links.iter().map(|link| link.latency_ps + through(link)).collect());
        // Equal rates are equal numbers, and a rate is at least 1e-6 GB/s: their bits are in order.
        let rates = quantiles(links.iter().map(|link| link.rate.gbs().to_bits()).collect());
        let (bisection_links, bisection_gbs) = bisection(machine, &links, &network);
        Self {
            ranks: sfr.sips,
            cubes: sfr.cubes(),
            pes: sfr.pes,
            links: links.len() as u32,
            degree: [degrees.iter().min(), degrees.iter().max()].map(|found| found.copied().unwrap_or(0)),
            diameter: (0..sfr.sips.min(STARTS)).map(|start| network.farthest(start)).max().unwrap_or(0),
            bisection_links,
            bisection_gbs,
            dimensions: dimensions(&sfr.network, sfr.sips),
            latency_ps: latencies,
            bandwidth_gbs: rates.map(f64::from_bits),
        }
    }
}

fn quantiles(mut values: Vec<u64>) -> [u64; 3] {
    values.sort_unstable();
    let Some(last) = values.len().checked_sub(1) else { return [0; 3] };
    [values[0], values[last / 2], values[last]]
}

fn dimensions(network: &SipNetwork, sips: u32) -> Vec<u32> {
    match *network {
        SipNetwork::Grid { w, h, d, .. } => [w, h, d].into_iter().filter(|&extent| extent > 1).collect(),
        SipNetwork::Hypercube { dims } => vec![2; dims as usize],
        SipNetwork::Ring | SipNetwork::FullyConnected | SipNetwork::Switch | SipNetwork::Custom => vec![sips],
    }
}

/// Who is behind the links of each node: SIPs, then a switch or relays.
struct Network {
    next: Vec<Vec<u32>>,
    sips: u32,
}

impl Network {
    fn of(sips: u32, relays: u32, links: &[SipLink]) -> Self {
        let mut next = vec![Vec::new(); (sips + relays) as usize];
        for link in links {
            next[link.from as usize].push(link.to);
        }
        Self { next, sips }
    }

    /// SIPs in the order of their distance from one of them, and of their number.
    fn nearest(&self, start: u32) -> Vec<(u32, u32)> {
        let mut seen = vec![false; self.next.len()];
        let (mut queue, mut found) = (VecDeque::from([(0, start)]), Vec::new());
        seen[start as usize] = true;
        while let Some((distance, node)) = queue.pop_front() {
            if node < self.sips {
                found.push((distance, node));
            }
            for &to in &self.next[node as usize] {
                if !std::mem::replace(&mut seen[to as usize], true) {
                    queue.push_back((distance + 1, to));
                }
            }
        }
        found
    }

    fn farthest(&self, start: u32) -> u32 {
        self.nearest(start).last().map_or(0, |&(distance, _)| distance)
    }
}

/// Fewest links that leave a half, and their GB/s.
fn bisection(machine: &Machine, links: &[SipLink], network: &Network) -> (u32, f64) {
    let sips = machine.sfr().sips;
    let half = sips / 2;
    let mut halves: Vec<Vec<bool>> = vec![(0..sips).map(|sip| sip < half).collect()];
    if let SipNetwork::Grid { w, h, d, .. } = machine.sfr().network {
        let mut stride = 1;
        for extent in [w, h, d] {
            halves.push((0..sips).map(|sip| sip / stride % extent < extent / 2).collect());
            stride *= extent;
        }
    }
    if machine.sfr().network == SipNetwork::Custom {
        for start in 0..sips.min(STARTS) {
            let mut inside = vec![false; sips as usize];
            for (_, sip) in network.nearest(start).into_iter().take(half as usize) {
                inside[sip as usize] = true;
            }
            halves.push(inside);
        }
    }
    let is_in = |inside: &[bool], node: u32| inside.get(node as usize).copied().unwrap_or(false);
    let leaving = |inside: &Vec<bool>| {
        let out = links.iter().filter(|link| is_in(inside, link.from) && !is_in(inside, link.to));
        out.fold((0u32, 0.0), |(count, gbs), link| (count + 1, gbs + link.rate.gbs()))
    };
    let halves = halves.iter().filter(|inside| inside.iter().any(|&is_in| is_in));
    halves.map(leaving).min_by_key(|&(count, _)| count).unwrap_or((0, 0.0))
}
