//! Whether one rank can stand for all of its class: the whole run covers the small one.

use super::shape::{Actor, Flow};
use super::sites::{Site, Sites};
use super::{Parties, mix};
use crate::disjoint::Disjoint;
use crate::timing::Stand;
use ahbm_machine::{Coord, LinkId, Machine};
use ahbm_program::ChannelId;
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

/// Per launch, the first of those that make one together; none where ranks do not do what those that stand for them do.
///
/// Every part is compared with the one that stands for it: the same program, agents of the same kinds, and the other
/// ends of their channels in ranks for which the same ranks stand.
pub(super) fn orbits(job: &impl Parties, sites: &Sites, stands: &[u32]) -> Option<Vec<u32>> {
    let graphs = job.graphs();
    if !graphs.iter().zip(stands).all(|(graph, &stand)| *graph == graphs[stand as usize]) {
        return None;
    }
    let mut compared: FxHashSet<(u32, u32, u32, u32)> = FxHashSet::default();
    // The launch of which a node of a rank that stands for others is part, and that rank's node in a launch.
    let mut of_node: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    let mut node_in: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    let mut ranks_of: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    let mut orbits = Vec::with_capacity(job.launches() as usize);
    for launch in 0..job.launches() {
        let members = || (0..job.parts(launch)).map(|part| (part, job.member(launch, part)));
        let (_, (rank, node)) = members().next()?;
        let orbit = *of_node.get(&(stands[rank as usize], node)).unwrap_or(&launch);
        for (part, (rank, node)) in members() {
            let stand = stands[rank as usize];
            if *of_node.entry((stand, node)).or_insert(orbit) != orbit
                || *node_in.entry((orbit, stand)).or_insert(node) != node
            {
                return None;
            }
            let (by, its) = job.part(stand, node)?;
            if job.is_message(launch) && (!job.is_message(by) || its != part) {
                return None;
            }
            let key = (sites.of[launch as usize], rank, sites.of[by as usize], stand);
            if compared.insert(key) {
                let copies = sites.copies.get(&key.0).into_iter().flatten();
                let copies = copies.map(|&(nth, site)| (site, job.copies().map_or(rank, |of| of.copy(rank, nth))));
                if !std::iter::once((key.0, rank)).chain(copies).all(|one| equal(sites, stands, one, (key.2, stand))) {
                    return None;
                }
            }
        }
        let mut ranks: Vec<u32> = members().map(|(_, (rank, _))| stands[rank as usize]).collect();
        ranks.sort_unstable();
        if *ranks_of.entry(orbit).or_insert_with(|| ranks.clone()) != ranks {
            return None;
        }
        orbits.push(orbit);
    }
    Some(orbits)
}

fn member(site: &Site, rank: u32) -> Option<usize> {
    site.members.binary_search_by_key(&rank, |&(rank, _)| rank).ok()
}

/// Whether a rank at a site does what another one does at another.
fn equal(sites: &Sites, stands: &[u32], one: (u32, u32), other: (u32, u32)) -> bool {
    let [(a, shape), (b, its)] = [one, other].map(|(site, _)| (&sites.list[site as usize], sites.shape(site)));
    let (Some(from), Some(to)) = (member(a, one.1), member(b, other.1)) else { return false };
    if a.shape != b.shape || shape.counts && !(from == to && apart(a, stands)) {
        return false;
    }
    let stand = |site: &Site, member: u32| stands[site.members[member as usize].0 as usize];
    let (mine, theirs) = (shape.agents.get(from), its.agents.get(to));
    let (Some(mine), Some(theirs)) = (mine, theirs) else { return mine.is_none() && theirs.is_none() };
    let same = |(&x, &y): (&u32, &u32)| {
        let (x, y) = (&shape.actors[x as usize], &its.actors[y as usize]);
        let end = |site: &Site, end: Option<(u32, u32)>| {
            end.map(|(agent, place)| {
                let actor = &shape.actors[agent as usize];
                (stand(site, actor.member), actor.number, place)
            })
        };
        x.kind == y.kind
            && x.ends.iter().map(|&x| end(a, x)).eq(y.ends.iter().map(|&y| end(b, y)))
            && x.owners.iter().map(|&x| stand(a, x)).eq(y.owners.iter().map(|&y| stand(b, y)))
    };
    mine.len() == theirs.len() && mine.iter().zip(theirs).all(same)
}

/// Whether no rank of a site stands for two of it.
fn apart(site: &Site, stands: &[u32]) -> bool {
    let mut seen = FxHashSet::default();
    site.members.iter().all(|&(rank, _)| seen.insert(stands[rank as usize]))
}

/// The link that stands for each link that ranks use which stand for others; none where links for which one stands carry different flows.
///
/// A flow of an agent is many flows of the whole run, one for each rank of the class. At every hop they must be on links
/// of one class, on every link of it, and on none of them twice; but for the trunks between nodes, each of which carries
/// equally many of them.
pub(super) fn links(
    sites: &Sites,
    stands: &[u32],
    orbits: &[u32],
    machine: &Machine,
) -> Option<FxHashMap<LinkId, Stand>> {
    let mut together: FxHashMap<u32, usize> = FxHashMap::default();
    let mut lists: Vec<Vec<u32>> = Vec::new();
    for (&orbit, &site) in orbits.iter().zip(&sites.of) {
        let list = *together.entry(orbit).or_insert_with(|| {
            lists.push(Vec::new());
            lists.len() - 1
        });
        lists[list].push(site);
    }
    // Launches at the same sites use the same links.
    let mut lists: IndexSet<Vec<u32>, FxBuildHasher> = lists.into_iter().collect();
    if !sites.copies.is_empty() {
        let sites_of = |site: &u32| sites.copies.get(site).into_iter().flatten().map(|&(_, copy)| copy);
        let copies = |&site: &u32| std::iter::once(site).chain(sites_of(&site));
        lists = lists.iter().map(|list| list.iter().flat_map(copies).collect()).collect();
    }
    let mut classes = Disjoint::new(sites.links.len());
    let mut uses: Vec<Vec<u32>> = Vec::new();
    // Per use of each hop, who sends over which channel.
    let mut senders: Vec<Vec<(u32, Option<ChannelId>)>> = Vec::new();
    // Per flow that takes a DMA channel of a link, its first hop and that channel.
    let mut channels: Vec<(usize, Channel)> = Vec::new();
    for list in &lists {
        // Per agent that stands for others, the first of its hops in `uses`.
        let mut first: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        for &site in list {
            let mut next = 0;
            for (at, actor) in sites.shape(site).actors.iter().enumerate() {
                let (rank, _) = sites.list[site as usize].members[actor.member as usize];
                let start = *first.entry((stands[rank as usize], actor.number)).or_insert(uses.len());
                let mut hop = start;
                for (flow, way) in actor.flows.iter().zip(sites.ways(site, at, &mut next)) {
                    if let Some(link) = sites.dma_link(machine, way) {
                        channels.push((hop, Channel { stream: stream(machine, rank, actor, flow), link }));
                    }
                    for &link in way {
                        if hop == uses.len() {
                            uses.push(Vec::new());
                            senders.push(Vec::new());
                        }
                        uses[hop].push(link);
                        senders[hop].push((rank, flow.channel));
                        hop += 1;
                    }
                }
            }
        }
    }
    if !shared_alike(&channels, stands) {
        return None;
    }
    let trunks: Vec<bool> = sites.links.iter().map(|&link| machine.is_trunk(link)).collect();
    // Per link, the use that was seen last, and how often it is on the link.
    let mut last = vec![(usize::MAX, 0u32); sites.links.len()];
    let mut counts = Vec::with_capacity(uses.len());
    for (number, links) in uses.iter().enumerate() {
        for &link in links {
            let (seen, count) = &mut last[link as usize];
            *count = if *seen == number { *count + 1 } else { 1 };
            *seen = number;
            if *count > 1 && !trunks[link as usize] {
                return None;
            }
            classes.join(links[0], link);
        }
        let count = last[links[0] as usize].1;
        if links.iter().any(|&link| last[link as usize].1 != count) {
            return None;
        }
        counts.push(count);
    }
    let mut sizes = vec![0; sites.links.len()];
    (0..sites.links.len() as u32).for_each(|link| sizes[classes.of(link) as usize] += 1);
    let mut shared = vec![0u32; sites.links.len()];
    for (links, &count) in uses.iter().zip(&counts) {
        let class = classes.of(links[0]) as usize;
        let known = std::mem::replace(&mut shared[class], count);
        if sizes[class] * count as usize != links.len() || ![0, count].contains(&known) {
            return None;
        }
    }
    let alone = alone(sites, machine);
    // Hops of one launch are numbered as its channels are, those of many launches are not.
    let mut at_link: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
    if sites.of.len() == 1 {
        for (number, links) in uses.iter().enumerate() {
            at_link.entry(classes.of(links[0])).or_default().push(number);
        }
    }
    let ordered: FxHashSet<u32> = at_link
        .into_iter()
        .filter(|(_, numbers)| in_one_order(&uses, &senders, numbers))
        .map(|(link, _)| link)
        .collect();
    // The others are not asked for: no rank is simulated that uses them.
    let mut asked = vec![false; sites.links.len()];
    for (&link, &(rank, _)) in uses.iter().zip(&senders).flat_map(|(links, senders)| links.iter().zip(senders)) {
        if stands[rank as usize] == rank {
            asked[link as usize] = true;
            asked[classes.of(link) as usize] = true;
        }
    }
    let stand = |at: u32| {
        let by = classes.of(at);
        let (exclusive, ordered) = (alone[by as usize], ordered.contains(&by));
        let times = shared[by as usize].max(1);
        (sites.links[at as usize], Stand { link: sites.links[by as usize], exclusive, times, ordered })
    };
    let asked = (0..).zip(&asked).filter(|(_, asked)| **asked).map(|(link, _)| link);
    Some(asked.map(stand).collect())
}

/// Whether these hops, which are on links of one class, are on every link of it hops of one rank, over channels that are
/// numbered in one order.
fn in_one_order(uses: &[Vec<u32>], senders: &[Vec<(u32, Option<ChannelId>)>], hops: &[usize]) -> bool {
    let channel = |hop: usize, at: usize| senders[hop][at].1;
    let mut hops = hops.to_vec();
    hops.sort_unstable_by_key(|&hop| channel(hop, 0));
    hops.iter().all(|&hop| senders[hop].iter().all(|(_, channel)| channel.is_some()))
        && hops.windows(2).all(|pair| {
            let (one, other) = (pair[0], pair[1]);
            uses[one] == uses[other]
                && (0..uses[one].len())
                    .all(|at| senders[one][at].0 == senders[other][at].0 && channel(one, at) < channel(other, at))
        })
}

/// Per link, whether only one DMA stream ever crosses it, always after the same links: as `timing/wiring` decides it for
/// the whole run. Events of the small run must have the times of the whole one.
fn alone(sites: &Sites, machine: &Machine) -> Vec<bool> {
    let mut users: Vec<Option<(User, u64)>> = vec![None; sites.links.len()];
    let mut alone = vec![true; sites.links.len()];
    for (site, place) in (0..).zip(&sites.list) {
        let mut next = 0;
        for (at, actor) in sites.shape(site).actors.iter().enumerate() {
            let (rank, _) = place.members[actor.member as usize];
            for (flow, way) in actor.flows.iter().zip(sites.ways(site, at, &mut next)) {
                let by = (stream(machine, rank, actor, flow), sites.dma_link(machine, way));
                let mut before = 0;
                for &link in way {
                    let user = (by, before);
                    alone[link as usize] &= *users[link as usize].get_or_insert(user) == user;
                    before = mix(before, u64::from(link) + 1);
                }
            }
        }
    }
    alone
}

/// Rank, cube, PE, and whether it reads.
type Stream = (u32, u32, u32, bool);

/// A stream, and the link of its DMA channel.
type User = (Stream, Option<LinkId>);

fn stream(machine: &Machine, rank: u32, actor: &Actor, flow: &Flow) -> Stream {
    let Coord { cube, pe, .. } = machine.coord(actor.place);
    (rank, cube, pe, flow.reads)
}

/// A DMA channel of a link.
struct Channel {
    stream: Stream,
    link: LinkId,
}

/// Whether flows of a rank share channels where, and only where, those of the rank that stands for it do.
fn shared_alike(channels: &[(usize, Channel)], stands: &[u32]) -> bool {
    let stand = |channel: &Channel| stands[channel.stream.0 as usize];
    let own = channels.iter().filter(|(_, channel)| stand(channel) == channel.stream.0);
    let of_stand: FxHashMap<usize, LinkId> = own.map(|(flow, channel)| (*flow, channel.link)).collect();
    let (mut forth, mut back) = (FxHashMap::default(), FxHashMap::default());
    channels.iter().all(|(flow, Channel { stream, link })| {
        of_stand.get(flow).is_some_and(|other| {
            *forth.entry((*stream, *other)).or_insert(*link) == *link
                && *back.entry((*stream, *link)).or_insert(*other) == *other
        })
    })
}
