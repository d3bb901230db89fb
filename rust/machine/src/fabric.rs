//! Networks of switches: the fabric between nodes from its short form, and the ways that a file gives.

use crate::custom::{Custom, CustomEdge, Wire};
use crate::declared::{Choose, FabricKeys, FabricKind, Nodes, Reader, RouteKeys, Sips, shorten};
use crate::ways::{Choice, Ways};
use crate::{Ps, Rate};
use std::collections::BTreeMap;

/// Most vertices of a network with a fabric.
const MAX_VERTICES: u64 = 1 << 18;
/// Most directed links between its switches.
const MAX_LINKS: u64 = 1 << 21;
/// Most ways that are given, and most vertices between the ends of one.
const MAX_GIVEN: usize = 65_536;
const MAX_BETWEEN: usize = 64;

const FABRIC: &str = "system.sips.nodes.fabric";
const ROUTES: &str = "system.sips.routes";

/// A fabric with its sizes settled.
struct Plan {
    /// Names of the switches, in order.
    names: Vec<String>,
    /// Per SIP the switch of its interface, by its place in `names`.
    leaf: Vec<u32>,
    /// Switches that links join, both ways, and the bandwidth of each link; several of one pair stand side by side.
    links: Vec<(u32, u32, Rate)>,
}

/// The links of nodes of `size` SIPs around a fabric, and the names of vertices that are no SIP. Of m nodes, the switches
/// of the nodes are m relays, then come those of the fabric.
pub(crate) fn fabric(sips: &Sips, nodes: &Nodes, reader: &mut Reader<'_>) -> Option<(Custom, Vec<String>)> {
    let keys = nodes.fabric.as_ref()?;
    refuse_spine(nodes, keys, reader);
    let (count, size) = (sips.count.0, nodes.size.0);
    let m = count.div_ceil(size);
    let plan = match keys.kind {
        FabricKind::Dragonfly => dragonfly(keys, nodes, m, size, reader),
        FabricKind::Clos | FabricKind::Rails => clos(keys, nodes, m, size, reader),
    }?;
    let base = count + m;
    let own = keys.switch_ns.unwrap_or(nodes.spine_ns).0;
    let (inside, nic) = (sips.link.latency_ns.0, nodes.nic_latency_ns.0);
    let between = keys.latency_ns.map_or(0, |ns| ns.0) + own;
    let mut edges = Vec::with_capacity(4 * count as usize + 2 * plan.links.len());
    let mut join = |from, to, wire, latency_ps: Ps| edges.push(CustomEdge { from, to, wire, latency_ps });
    for (sip, &leaf) in (0..count).zip(&plan.leaf) {
        join(sip, count + sip / size, Wire::Link, inside + nodes.switch_ns.0);
        join(count + sip / size, sip, Wire::Link, inside);
        // A link into a switch has the latency through it.
        join(sip, base + leaf, Wire::Way, nic + own);
        join(base + leaf, sip, Wire::Way, nic);
    }
    for &(a, b, rate) in &plan.links {
        join(base + a, base + b, Wire::Fabric(rate), between);
        join(base + b, base + a, Wire::Fabric(rate), between);
    }
    edges.sort_by_key(|edge| (edge.from, edge.to));
    let custom = Custom::new(base + plan.names.len() as u32, edges);
    let mut order: Vec<u32> = (0..count).collect();
    order.sort_by_key(|&sip| (plan.leaf[sip as usize], sip));
    let mut leaves: Vec<(u32, u32)> = plan.leaf.iter().map(|&leaf| (base + leaf, 0)).collect();
    (0..).zip(order).for_each(|(place, sip)| leaves[sip as usize].1 = place);
    let choice = choice(sips.routes.as_ref(), Choose::Ecmp);
    let ways = Ways::new(&custom.edges, custom.vertices(), choice, Some(leaves.into()), base);
    let names: Vec<String> = (0..m).map(|node| format!("node{node}.switch")).chain(plan.names).collect();
    let custom = custom.with_ways(ways, Some((count, size)));
    Some((given(custom, sips, &names, reader), names))
}

/// Keys that say what a spine is, where there is none.
fn refuse_spine(nodes: &Nodes, keys: &FabricKeys, reader: &mut Reader<'_>) {
    let mut refuse = |key: &str, hint: &str| {
        let path = format!("system.sips.nodes.{key}");
        let message = format!("`{key}` is one of a spine, which a fabric stands in for");
        reader.report_paths(&[&path, FABRIC], "AHBM-T015", message, hint);
    };
    if nodes.taper.0 != 1.0 {
        refuse("taper", "leave a taper of 1, and give fabric.oversubscription");
    }
    if nodes.spine_reduces == Some(true) {
        refuse("spine_reduces", "set it to false: switches of a fabric reduce nothing");
    }
    let clos = keys.kind != FabricKind::Dragonfly;
    let tiers = keys.tiers.map_or(2, |tiers| tiers.0);
    let spineless = !clos || tiers == 1;
    let mut none = |key: &str, given: bool, unfit: bool| {
        if given && unfit {
            let path = format!("{FABRIC}.{key}");
            let message = format!("this fabric has no `{key}`");
            reader.report_paths(&[&path, FABRIC], "AHBM-T015", message, "remove the key, or change kind or tiers");
        }
    };
    none("tiers", keys.tiers.is_some(), !clos);
    none("nodes_per_pod", keys.nodes_per_pod.is_some(), !clos || tiers < 3);
    none("spines", keys.spines.is_some(), spineless);
    none("cores", keys.cores.is_some(), !clos || tiers < 3);
    none("oversubscription", keys.oversubscription.is_some(), spineless);
    none("links", keys.links.is_some(), clos && tiers == 1);
    none("bandwidth_gbs", keys.bandwidth_gbs.is_some(), clos && tiers == 1);
    none("latency_ns", keys.latency_ns.is_some(), clos && tiers == 1);
    none("routers", keys.routers.is_some(), clos);
    let all = keys.spines.is_some() && keys.oversubscription.is_some() && keys.bandwidth_gbs.is_some();
    none("oversubscription", all, all);
}

/// Whether a fabric of so many switches and links stays within what is built.
fn fits(switches: u64, links: u64, reader: &mut Reader<'_>) -> bool {
    let fits = switches <= MAX_VERTICES && links <= MAX_LINKS;
    if !fits {
        let message = format!(
            "a fabric of {switches} switches and {links} links is larger than {MAX_VERTICES} switches and {MAX_LINKS} links"
        );
        reader.report_paths(&[FABRIC], "AHBM-T009", message, "use fewer nodes, or switches of more interfaces");
    }
    fits
}

fn clos(keys: &FabricKeys, nodes: &Nodes, m: u32, size: u32, reader: &mut Reader<'_>) -> Option<Plan> {
    let rails = keys.kind == FabricKind::Rails;
    let tiers = keys.tiers.map_or(2, |tiers| tiers.0);
    let per_leaf = keys.nodes_per_leaf.map_or(if tiers == 1 { m } else { 4 }, |nodes| nodes.0);
    let (planes, down) = if rails { (size, per_leaf) } else { (1, per_leaf.saturating_mul(size)) };
    let groups = m.div_ceil(per_leaf);
    let leaves = u64::from(groups) * u64::from(planes);
    if tiers == 1 && !rails && groups > 1 {
        let message = format!("{groups} leaves of one tier are joined by nothing");
        reader.report_paths(&[FABRIC], "AHBM-T010", message, "use two tiers, or more nodes per leaf");
        return None;
    }
    let per_pod = match tiers {
        3 => keys.nodes_per_pod.map_or(per_leaf.saturating_mul(4), |nodes| nodes.0),
        _ => m.div_ceil(per_leaf) * per_leaf,
    };
    if !per_pod.is_multiple_of(per_leaf) {
        let message = format!("a pod of {per_pod} nodes is no whole number of leaves of {per_leaf}");
        let paths = ["system.sips.nodes.fabric.nodes_per_pod", FABRIC];
        reader.report_paths(&paths, "AHBM-T007", message, "make it a multiple of nodes_per_leaf");
        return None;
    }
    let leaf_name =
        |leaf: u32| if rails { format!("rail{}.leaf{}", leaf % size, leaf / size) } else { format!("leaf{leaf}") };
    let leaf_of = |node: u32, interface: u32| if rails { node / per_leaf * size + interface } else { node / per_leaf };
    if !fits(leaves, 0, reader) {
        return None;
    }
    let leaf: Vec<u32> = (0..m * size).map(|sip| leaf_of(sip / size, sip % size)).collect();
    let mut names: Vec<String> = (0..leaves as u32).map(leaf_name).collect();
    let mut links = Vec::new();
    if tiers == 1 {
        return Some(Plan { names, leaf, links });
    }
    let side = keys.links.map_or(1, |links| links.0);
    let nic = nodes.nic_gbs.gbs();
    let asked = keys.oversubscription.map_or(1.0, |real| real.0);
    if asked <= 0.0 || !nic.is_finite() && (keys.spines.is_none() || keys.bandwidth_gbs.is_none()) {
        let message = "links between switches follow from no bandwidth".to_owned();
        reader.report_paths(&[FABRIC], "AHBM-T005", message, "give spines and bandwidth_gbs");
        return None;
    }
    let together = f64::from(down) * nic / asked;
    let (spines, gbs) = match (keys.spines, keys.bandwidth_gbs) {
        (Some(spines), Some(own)) => (spines.0, own.gbs()),
        (Some(spines), None) if keys.oversubscription.is_some() => {
            (spines.0, together / f64::from(spines.0.saturating_mul(side)))
        }
        (Some(spines), None) => (spines.0, nic),
        (None, own) => {
            let gbs = own.map_or(nic, |own| own.gbs());
            ((together / (gbs * f64::from(side))).ceil().clamp(1.0, 1e6) as u32, gbs)
        }
    };
    let Some(rate) = Rate::from_gbs(gbs).filter(|_| gbs >= 1e-3) else {
        reader.report_paths(&[FABRIC], "AHBM-T005", format!("a link of {gbs} GB/s is none"), "use fewer spines");
        return None;
    };
    let pods = m.div_ceil(per_pod);
    let of_pod = per_pod / per_leaf * planes;
    let all = u64::from(spines) * u64::from(pods);
    let up = match (tiers, keys.cores) {
        (3, Some(cores)) if !cores.0.is_multiple_of(spines) => {
            let message = format!("{} cores cannot be shared out among {spines} spines of a pod", cores.0);
            let paths = ["system.sips.nodes.fabric.cores", FABRIC];
            reader.report_paths(&paths, "AHBM-T007", message, "make it a multiple of spines");
            return None;
        }
        (3, Some(cores)) => cores.0 / spines,
        (3, None) => of_pod.saturating_mul(side),
        _ => 0,
    };
    let cores = u64::from(up) * u64::from(spines);
    let lines = leaves * u64::from(spines) * u64::from(side) + all * u64::from(up);
    if !fits(leaves + all + cores, 2 * lines, reader) {
        return None;
    }
    let (leaves, all) = (leaves as u32, all as u32);
    for leaf in 0..leaves {
        let pod = leaf / of_pod;
        for spine in 0..spines {
            links.extend((0..side).map(|_| (leaf, leaves + pod * spines + spine, rate)));
        }
    }
    names.extend((0..all).map(|spine| format!("spine{spine}")));
    for spine in 0..all {
        let first = leaves + all + spine % spines * up;
        links.extend((first..first + up).map(|core| (leaves + spine, core, rate)));
    }
    names.extend((0..cores).map(|core| format!("core{core}")));
    Some(Plan { names, leaf, links })
}

/// Groups of routers: all of a group are joined, and every two groups, over routers in turn.
fn dragonfly(keys: &FabricKeys, nodes: &Nodes, m: u32, size: u32, reader: &mut Reader<'_>) -> Option<Plan> {
    let per_router = keys.nodes_per_leaf.map_or(4, |nodes| nodes.0);
    let routers = keys.routers.map_or(4, |routers| routers.0);
    let side = keys.links.map_or(1, |links| links.0);
    let groups = m.div_ceil(per_router.saturating_mul(routers));
    let rate = keys.bandwidth_gbs.unwrap_or(nodes.nic_gbs).rate;
    let (a, g) = (u64::from(routers), u64::from(groups));
    if !fits(a * g, g * a * (a - 1) + g * (g - 1) * u64::from(side), reader) {
        return None;
    }
    let at = |group: u32, router: u32| group * routers + router;
    let mut links = Vec::new();
    for group in 0..groups {
        for one in 0..routers {
            links.extend((one + 1..routers).map(|other| (at(group, one), at(group, other), rate)));
        }
    }
    // The k-th link out of a group leads k + 1 groups on.
    let most = (groups.saturating_sub(1) * side).div_ceil(routers).max(1);
    for one in 0..groups {
        for other in one + 1..groups {
            let (forth, back) = (other - one - 1, groups - 1 - (other - one));
            let router = |k: u32, line: u32| (k * side + line) / most;
            links.extend((0..side).map(|line| (at(one, router(forth, line)), at(other, router(back, line)), rate)));
        }
    }
    let names = (0..groups * routers).map(|at| format!("group{}.router{}", at / routers, at % routers)).collect();
    Some(Plan { names, leaf: (0..m * size).map(|sip| sip / size / per_router).collect(), links })
}

/// Which of several equal ways is taken.
pub(crate) fn choice(routes: Option<&RouteKeys>, usual: Choose) -> Choice {
    match routes.and_then(|routes| routes.choose).unwrap_or(usual) {
        Choose::First => Choice::First,
        Choose::Ecmp => Choice::Ecmp { seed: routes.and_then(|routes| routes.seed).map_or(0, |seed| seed.0) },
        Choose::Rails => Choice::Rails,
    }
}

/// Ways that the file gives.
pub(crate) fn given(custom: Custom, sips: &Sips, names: &[String], reader: &mut Reader<'_>) -> Custom {
    let Some(routes) = sips.routes.as_ref().filter(|routes| !routes.given.is_empty()) else { return custom };
    if routes.given.len() > MAX_GIVEN {
        let message = format!("{} ways are more than the limit of {MAX_GIVEN}", routes.given.len());
        reader.report_paths(&[ROUTES], "AHBM-T009", message, "give fewer");
        return custom;
    }
    let count = sips.count.0;
    let own: Vec<String> = (0..count).map(|sip| format!("sip{sip}")).collect();
    let of_name: BTreeMap<&str, u32> = own.iter().chain(names).map(String::as_str).zip(0..).collect();
    let mut found: BTreeMap<(u32, u32), Box<[u32]>> = BTreeMap::new();
    for (index, way) in routes.given.iter().enumerate() {
        let path = format!("{ROUTES}.given.{index}");
        let mut wrong = |message: String, hint: &str| reader.report_paths(&[&path], "AHBM-T010", message, hint);
        let ends = way.from.zip(way.to).map(|(from, to)| (from.0, to.0));
        let Some((from, to)) = ends.filter(|&(from, to)| from != to && from.max(to) < count) else {
            wrong("a way needs two SIPs as its ends".to_owned(), "give `from` and `to`");
            continue;
        };
        if way.by.len() > MAX_BETWEEN {
            wrong(format!("a way by {} vertices", way.by.len()), "give at most 64");
            continue;
        }
        let between: Result<Vec<u32>, &str> =
            way.by.iter().map(|name| of_name.get(name.0.as_str()).copied().ok_or(name.0.as_str())).collect();
        let vertices = match between {
            Ok(between) => [&[from], &between[..], &[to]].concat(),
            Err(name) => {
                wrong(format!("nothing is called `{}`", shorten(name)), "use names of links on reports, as leaf0");
                continue;
            }
        };
        let gap = vertices.windows(2).find(|pair| custom.direct(pair[0], pair[1]).is_none());
        let name = |vertex: u32| own.get(vertex as usize).or_else(|| names.get((vertex - count) as usize));
        match (custom.along(&vertices), gap) {
            (Some(edges), _) => {
                if found.insert((from, to), edges.into()).is_some() {
                    wrong(format!("the way from SIP {from} to SIP {to} is given twice"), "remove one of them");
                }
            }
            (None, gap) => {
                let ends = gap.and_then(|pair| name(pair[0]).zip(name(pair[1])));
                let ends = ends.map_or_else(String::new, |(from, to)| format!(" from {from} to {to}"));
                wrong(format!("there is no link{ends}"), "name every switch on the way");
            }
        }
    }
    custom.with_given(found)
}
