//! Rules between values: grid sizes, custom edges, budgets. Values that pass here can be resolved without errors.

use crate::cube_links::CubeLinks;
use crate::custom::{Custom, CustomEdge, Wire};
use crate::declared::{Choose, Gbs, Kind, Names, Reader, Sips, Topology, shorten};
use crate::fabric;
use crate::protocol::{Carried, Interfaces};
use crate::sip_links::{Reducer, Shape, SipLinks};
use crate::ways::{Choice, Ways};
use crate::{CallCosts, Ps, Rate, Sfr, SipNetwork, ns_to_ps};
use ahbm_findings::suggestion;

const MAX_PES: u64 = 16 << 20;
const MAX_CUSTOM_SIPS: u32 = 4_096;
const MAX_CUSTOM_LINKS: u64 = 1 << 21;
/// The most SIPs of a network of nodes, whose ways need no search.
const MAX_NODES_SIPS: u32 = 1 << 17;

/// The shape of a machine that keeps all budgets.
#[derive(Debug)]
pub(crate) struct Validated {
    pub(crate) sfr: Sfr,
    pub(crate) sips: SipLinks,
    pub(crate) cube: CubeLinks,
    pub(crate) hbm_bytes: u64,
}

/// Checks everything that concerns more than one key; `None` when a finding was recorded.
pub(crate) fn validate(declared: &Topology, reader: &mut Reader<'_>) -> Option<Validated> {
    let sips = &declared.system.sips;
    let layout = &declared.cube.pe_layout;
    let pes = layout.corners.0 * layout.pe_per_corner.0;
    let (cube_w, cube_h) = (declared.sip.cube_mesh.w.0, declared.sip.cube_mesh.h.0);
    let network = network(declared, reader);
    if let Some(name) = declared.protocol.as_ref().filter(|name| !declared.protocols.0.contains_key(&name.0)) {
        let known: Vec<&str> = declared.protocols.0.keys().map(String::as_str).collect();
        let message = format!("no protocol is called `{}`", shorten(&name.0));
        reader.report_paths(&["protocol"], "AHBM-T006", message, &suggestion(&name.0, &known));
    }
    let total = u64::from(sips.count.0) * u64::from(cube_w * cube_h) * u64::from(pes);
    if total > MAX_PES {
        let message = format!("{total} PEs are more than the limit of {MAX_PES}");
        reader.report_paths(
            &["system.sips.count", "sip.cube_mesh", "cube.pe_layout"],
            "AHBM-T009",
            message,
            "use fewer SIPs, cubes or PEs",
        );
        return None;
    }
    let slices = declared.cube.memory_map.hbm_slices_per_cube.map_or(pes, |slices| slices.0);
    if slices < pes {
        let message = format!("{slices} HBM slices cannot serve {pes} PEs");
        reader.report_paths(
            &["cube.memory_map.hbm_slices_per_cube", "cube.pe_layout"],
            "AHBM-T013",
            message,
            "give every PE of a cube a slice",
        );
    }
    let network = network?;
    let (shape, names) = shape(&network, declared, reader);
    let cube = cube_links(declared, pes);
    let links =
        u64::from(sips.count.0) * u64::from(cube_w * cube_h) * u64::from(cube.links()) + shape.links(sips.count.0);
    if links >= u64::from(u32::MAX) {
        let message = format!("{links} links are more than the limit of {}", u32::MAX - 1);
        reader.report_paths(
            &["system.sips.count", "system.sips.topology", "cube.noc"],
            "AHBM-T009",
            message,
            "use fewer SIPs or another network between them",
        );
    }
    let sfr = Sfr { network, sips: sips.count.0, cube_w, cube_h, pes };
    if reader.clean()
        && let Err(finding) = sfr.validate()
    {
        reader.push(finding);
    }
    let (link, nodes) = (sips.link.bandwidth_gbs.rate, interfaces(sips));
    let sips = SipLinks {
        sips: sips.count.0,
        carried: Carried::new(link, nodes.as_ref(), None, &CallCosts::default()),
        link,
        nodes,
        latency_ps: sips.link.latency_ns.0,
        along: along(sips),
        switch_ps: sips.switch.latency_ns.0,
        reducers: reducers(sips),
        shape,
        names: names.into(),
        host: match sips.topology {
            Kind::Nodes => sips.nodes.as_ref().map_or(8, |nodes| nodes.size.0).min(sips.count.0),
            _ => sips.host_size.map_or(1, |size| size.0),
        },
    };
    let hbm_bytes = (declared.cube.memory_map.hbm_total_gb.0 * f64::from(1 << 30)) as u64 / u64::from(slices);
    Some(Validated { sfr, sips, cube, hbm_bytes })
}

/// Bandwidth and latency of the links along each dimension, where those of one are unlike `system.sips.link`.
fn along(sips: &Sips) -> Option<[(Rate, Ps); 3]> {
    let keys = sips.links.as_ref()?;
    let all = (sips.link.bandwidth_gbs.rate, sips.link.latency_ns.0);
    let along = [&keys.w, &keys.h, &keys.d].map(|own| {
        own.as_ref().map_or(all, |own| {
            let rate = own.bandwidth_gbs.map_or(all.0, |gbs| gbs.rate);
            (rate, own.latency_ns.map_or(all.1, |ns| ns.0))
        })
    });
    along.iter().any(|&own| own != all).then_some(along)
}

/// The interfaces of `topology: nodes`.
fn interfaces(sips: &Sips) -> Option<Interfaces> {
    let keys = sips.nodes.clone().unwrap_or_default();
    (sips.topology == Kind::Nodes).then(|| Interfaces {
        size: keys.size.0,
        gbs: keys.nic_gbs.gbs(),
        spread: keys.striped == Some(true),
        gain: keys.striped_gain.map_or(1.0, |gain| gain.0),
        taper: keys.taper.0,
    })
}

/// The switches that reduce: that of `topology: switch`, or those of the nodes and then the spine.
fn reducers(sips: &Sips) -> Vec<Reducer> {
    let count = sips.count.0;
    let mut found = Vec::new();
    if sips.switch.reduces {
        found.push(Reducer { vertex: count, sips: 0..count, rate: sips.switch.reduce_gbs.rate });
    }
    let Some(keys) = sips.nodes.as_ref().filter(|_| sips.topology == Kind::Nodes) else { return found };
    let (size, m) = (keys.size.0, count.div_ceil(keys.size.0));
    let rate = |gbs: Option<Gbs>| gbs.map_or(Rate::UNLIMITED, |gbs| gbs.rate);
    if keys.reduces == Some(true) {
        let node = |node: u32| Reducer {
            vertex: count + node,
            sips: node * size..(node + 1).saturating_mul(size).min(count),
            rate: rate(keys.reduce_gbs),
        };
        found.extend((0..m).map(node));
    }
    if keys.spine_reduces == Some(true) && m > 1 && keys.fabric.is_none() {
        found.push(Reducer { vertex: count + 3 * m, sips: 0..count, rate: rate(keys.spine_reduce_gbs) });
    }
    found
}

fn cube_links(declared: &Topology, pes: u32) -> CubeLinks {
    let (cube, pe) = (&declared.cube, &declared.pe);
    // Each factor is bounded, so neither the product nor the delay can leave its range.
    let channels = f64::from(pe.hbm.pseudo_channels.0);
    CubeLinks {
        pes,
        pe_per_corner: cube.pe_layout.pe_per_corner.0,
        rows: cube.noc.rows.0,
        cols: cube.noc.cols.0,
        connections: cube.ucie.connections.0,
        noc_out: pe.noc_port_gbs.rate,
        noc_in: pe.noc_port_in_gbs.rate,
        hbm: Rate::from_gbs(pe.hbm.pc_bandwidth_gbs.gbs() * channels).unwrap_or(Rate::UNLIMITED),
        sram: cube.sram.bandwidth_gbs.rate,
        noc: cube.noc.link_gbs.rate,
        ucie: cube.ucie.bandwidth_gbs.rate,
        io: declared.sip.io.bandwidth_gbs.rate,
        router_ps: cube.noc.router_ns.0,
        wire_ps: ns_to_ps(cube.noc.pitch_mm.0 * declared.system.ns_per_mm.0).unwrap_or(0),
        crossing_ps: 2 * cube.ucie.port_ns.0 + cube.ucie.wire_ns.0,
        io_ps: declared.sip.io.latency_ns.0,
        access_ps: pe.hbm.access_ns.0,
    }
}

/// The network with its sizes settled.
fn network(declared: &Topology, reader: &mut Reader<'_>) -> Option<SipNetwork> {
    let sips = &declared.system.sips;
    let count = sips.count.0;
    let dimensions = match sips.topology {
        Kind::Torus2d | Kind::Mesh2d => 2,
        Kind::Mesh3d | Kind::Torus3d => 3,
        _ => 0,
    };
    let sizes = [("w", sips.w), ("h", sips.h), ("d", sips.d)];
    for (position, (key, size)) in sizes.iter().enumerate() {
        if size.is_some() && position >= dimensions && !(position < 2 && dimensions == 0) {
            let message = format!("this network has no extent `{key}`");
            let path = format!("system.sips.{key}");
            reader.report_paths(&[&path, "system.sips.topology"], "AHBM-T015", message, "remove the key");
        }
    }
    let links = sips.links.clone().unwrap_or_default();
    let along = [("w", links.w.is_some()), ("h", links.h.is_some()), ("d", links.d.is_some())];
    for (name, _) in along.into_iter().skip(dimensions).filter(|&(_, given)| given) {
        let path = format!("system.sips.links.{name}");
        let message = format!("a {} network has no dimension {name}", sips.topology.name());
        let hint =
            "meshes and tori have w and h, those of three dimensions d; system.sips.link is every link of others";
        reader.report_paths(&[&path, "system.sips.topology"], "AHBM-T015", message, hint);
    }
    if !sips.edges.is_empty() && sips.topology != Kind::Custom {
        reader.report_paths(
            &["system.sips.edges", "system.sips.topology"],
            "AHBM-T015",
            "edges are declared, but the network is not custom".to_owned(),
            "set system.sips.topology to custom, or remove the edges",
        );
    }
    for (key, given, kind, name) in [
        ("system.sips.relays", sips.relays.is_some(), Kind::Custom, "custom"),
        ("system.sips.relay_names", !sips.relay_names.is_empty(), Kind::Custom, "custom"),
        ("system.sips.host_size", sips.host_size.is_some(), Kind::Custom, "custom"),
        ("system.sips.nodes", sips.nodes.is_some(), Kind::Nodes, "nodes"),
    ] {
        if given && sips.topology != kind {
            let message = format!("the network has none: it is no {name} network");
            let hint = format!("set system.sips.topology to {name}, or remove the key");
            reader.report_paths(&[key, "system.sips.topology"], "AHBM-T015", message, &hint);
        }
    }
    let has_fabric = sips.nodes.as_ref().is_some_and(|nodes| nodes.fabric.is_some());
    if let Some(routes) = &sips.routes {
        let unused = match (sips.topology, routes.choose) {
            (Kind::Nodes, _) if has_fabric => None,
            (Kind::Custom, Some(Choose::Rails)) => Some("a network of custom edges has no rails"),
            (Kind::Custom, _) => None,
            _ => Some("routes are stated, but the network has one way between two SIPs"),
        };
        if let Some(message) = unused {
            let hint = "give system.sips.nodes.fabric or custom edges, or remove the key";
            reader.report_paths(&["system.sips.routes", "system.sips.topology"], "AHBM-T015", message.to_owned(), hint);
        }
        let hashed = routes.choose == Some(Choose::Ecmp) || has_fabric && routes.choose.is_none();
        if routes.seed.is_some() && !hashed {
            let message = "a seed is given, but nothing is hashed".to_owned();
            reader.report_paths(&["system.sips.routes.seed"], "AHBM-T015", message, "set choose to ecmp");
        }
    }
    if sips.switch.reduces && sips.topology != Kind::Switch {
        reader.report_paths(
            &["system.sips.switch.reduces", "system.sips.topology"],
            "AHBM-T015",
            "the switch reduces, but the network has none".to_owned(),
            "set system.sips.topology to switch, or remove the key",
        );
    }
    match sips.topology {
        Kind::Ring1d => Some(SipNetwork::Ring),
        Kind::FullyConnected => Some(SipNetwork::FullyConnected),
        Kind::Switch => Some(SipNetwork::Switch),
        Kind::Custom | Kind::Nodes => {
            let most = if sips.topology == Kind::Nodes { MAX_NODES_SIPS } else { MAX_CUSTOM_SIPS };
            if count > most {
                let name = sips.topology.name();
                let message = format!("{count} SIPs are more than the limit of {most} for a {name} network");
                reader.report_paths(&["system.sips.count"], "AHBM-T009", message, "use one of the regular networks");
                return None;
            }
            Some(SipNetwork::Custom)
        }
        Kind::Hypercube => {
            if !count.is_power_of_two() {
                let message = format!("a hypercube of {count} SIPs does not exist");
                let hint = format!("use {} or {}", count.next_power_of_two() / 2, count.next_power_of_two());
                reader.report_paths(&["system.sips.count", "system.sips.topology"], "AHBM-T008", message, &hint);
                return None;
            }
            Some(SipNetwork::Hypercube { dims: count.trailing_zeros() })
        }
        Kind::Torus2d | Kind::Mesh2d | Kind::Mesh3d | Kind::Torus3d => {
            let wrap = matches!(sips.topology, Kind::Torus2d | Kind::Torus3d);
            let extents: Vec<_> = sizes[..dimensions].iter().map(|(_, size)| size.map(|s| s.0)).collect();
            let [w, h, d] = grid(count, &extents, reader)?;
            Some(SipNetwork::Grid { w, h, d, wrap })
        }
    }
}

/// Grid extents: those given, with at most one left out; else equal ones.
fn grid(count: u32, given: &[Option<u32>], reader: &mut Reader<'_>) -> Option<[u32; 3]> {
    let names = ["w", "h", "d"];
    let mut extents = [1u32; 3];
    let missing = given.iter().filter(|g| g.is_none()).count();
    let product: u64 = given.iter().flatten().map(|&g| u64::from(g)).product();
    let known = given.iter().zip(names).filter_map(|(g, n)| g.map(|g| format!("{n} = {g}"))).collect::<Vec<_>>();
    let mut refuse = |message: String, hint: &str| {
        let paths = ["system.sips.count", "system.sips.w", "system.sips.h", "system.sips.d"];
        let sites: Vec<&str> = paths
            .iter()
            .enumerate()
            .filter(|&(i, _)| i == 0 || given.get(i - 1).is_some_and(Option::is_some))
            .map(|(_, path)| *path)
            .collect();
        reader.report_paths(&sites, "AHBM-T007", message, hint);
        None
    };
    if missing == given.len() {
        let side =
            (1..=count).take_while(|&s| u64::from(s).pow(given.len() as u32) <= u64::from(count)).last().unwrap_or(1);
        if u64::from(side).pow(given.len() as u32) != u64::from(count) {
            let shape = if given.len() == 2 { "square" } else { "cube" };
            let keys = names[..given.len()].join(", ");
            return refuse(
                format!("{count} SIPs do not form a perfect {shape}"),
                &format!(
                    "give system.sips.{{{keys}}} with a product of {count}, or a number of SIPs (--ranks) that does"
                ),
            );
        }
        extents[..given.len()].fill(side);
        return Some(extents);
    }
    if missing > 1
        || (missing == 1 && !u64::from(count).is_multiple_of(product))
        || (missing == 0 && product != u64::from(count))
    {
        return refuse(
            format!("a grid with {} does not hold {count} SIPs", known.join(", ")),
            "the product of the extents must be system.sips.count",
        );
    }
    for (extent, given) in extents.iter_mut().zip(given) {
        *extent = given.unwrap_or_else(|| (u64::from(count) / product) as u32);
    }
    Some(extents)
}

/// The network, and the names of its vertices that are no SIP where it has any of its own.
fn shape(network: &SipNetwork, declared: &Topology, reader: &mut Reader<'_>) -> (Shape, Vec<String>) {
    let shape = match *network {
        SipNetwork::Ring => Shape::Grid { extents: [declared.system.sips.count.0, 1, 1], wrap: true },
        SipNetwork::Grid { w, h, d, wrap } => Shape::Grid { extents: [w, h, d], wrap },
        SipNetwork::Hypercube { dims } => Shape::Hypercube { dims },
        SipNetwork::FullyConnected => Shape::FullyConnected,
        SipNetwork::Switch => Shape::Switch,
        SipNetwork::Custom => {
            let nodes = declared.system.sips.topology == Kind::Nodes;
            let (custom, names) = if nodes { self::nodes(declared, reader) } else { custom(declared, reader) };
            return (Shape::Custom(custom), names);
        }
    };
    (shape, Vec::new())
}

/// The names of the relays.
fn relay_names(sips: &Sips, reader: &mut Reader<'_>) -> Vec<String> {
    let relays = sips.relays.map_or(0, |relays| relays.0) as usize;
    if sips.relay_names.is_empty() {
        return (0..relays).map(|relay| format!("relay{relay}")).collect();
    }
    let names: Vec<String> = sips.relay_names.iter().map(|name| name.0.clone()).collect();
    let legal = |name: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        !name.is_empty() && name.len() <= 64 && name.chars().all(plain) && !name.starts_with("sip")
    };
    let alike = names.iter().collect::<std::collections::BTreeSet<_>>().len() < names.len();
    if names.len() != relays || alike || !names.iter().all(|name| legal(name)) {
        let message = format!("{} names do not name {relays} relays", names.len());
        let hint = "one for each, all different, of letters, digits, _, - and ., not beginning with sip";
        reader.report_paths(&["system.sips.relay_names", "system.sips.relays"], "AHBM-T010", message, hint);
    }
    names
}

fn custom(declared: &Topology, reader: &mut Reader<'_>) -> (Custom, Vec<String>) {
    let sips = &declared.system.sips;
    let relays = sips.relays.map_or(0, |relays| relays.0);
    let vertices = sips.count.0 + relays;
    let mut edges = Vec::new();
    for (index, edge) in sips.edges.iter().enumerate() {
        let path = format!("system.sips.edges.{index}");
        let (Some(from), Some(to)) = (edge.from, edge.to) else {
            let message = "an edge needs both ends".to_owned();
            reader.report_paths(&[&path], "AHBM-T010", message, "give `from` and `to`");
            continue;
        };
        if from.0 == to.0 || from.0.max(to.0) >= vertices {
            let also = if relays > 0 { format!(" and {relays} relays") } else { String::new() };
            let message =
                format!("an edge from SIP {} to SIP {} does not fit {} SIPs{also}", from.0, to.0, sips.count.0);
            reader.report_paths(
                &[&path, "system.sips.count"],
                "AHBM-T010",
                message,
                "SIPs are counted from 0, relays follow them; no loops",
            );
            continue;
        }
        let rate = edge.bandwidth_gbs.unwrap_or(sips.link.bandwidth_gbs).rate;
        let (from, to, wire) = (from.0, to.0, Wire::Own(rate));
        let latency_ps = edge.latency_ns.unwrap_or(sips.link.latency_ns).0;
        let side = edge.links.map_or(1, |links| links.0);
        if edges.len() as u64 + 2 * u64::from(side) > MAX_CUSTOM_LINKS {
            let message = format!("more than {MAX_CUSTOM_LINKS} links");
            reader.report_paths(&["system.sips.edges"], "AHBM-T009", message, "use fewer links side by side");
            break;
        }
        for _ in 0..side {
            edges.push((CustomEdge { from, to, wire, latency_ps }, index));
            if edge.bidirectional {
                edges.push((CustomEdge { from: to, to: from, wire, latency_ps }, index));
            }
        }
    }
    edges.sort_by_key(|(edge, index)| (edge.from, edge.to, *index));
    for pair in edges.windows(2) {
        let ((a, first), (b, second)) = (&pair[0], &pair[1]);
        if (a.from, a.to) == (b.from, b.to) && first != second {
            let paths = [format!("system.sips.edges.{first}"), format!("system.sips.edges.{second}")];
            let message = format!("the link from SIP {} to SIP {} is declared twice", a.from, a.to);
            let hint = "an edge is bidirectional unless it says `bidirectional: false`";
            reader.report_paths(&[&paths[0], &paths[1]], "AHBM-T010", message, hint);
        }
    }
    let side_by_side = sips.edges.iter().any(|edge| edge.links.is_some_and(|links| links.0 > 1));
    let choice = fabric::choice(sips.routes.as_ref(), Choose::First);
    if side_by_side && choice == Choice::First {
        let message = "links side by side, and messages that all take the first".to_owned();
        let paths = ["system.sips.edges", "system.sips.routes"];
        reader.report_paths(&paths, "AHBM-T015", message, "set system.sips.routes.choose to ecmp, or give one link");
    }
    if let Some(size) = sips.host_size.filter(|size| !sips.count.0.is_multiple_of(size.0)) {
        let message = format!("{} SIPs are no whole number of hosts of {}", sips.count.0, size.0);
        let paths = ["system.sips.host_size", "system.sips.count"];
        reader.report_paths(&paths, "AHBM-T007", message, "change one of them");
    }
    let names = relay_names(sips, reader);
    let custom = Custom::new(vertices, edges.into_iter().map(|(edge, _)| edge).collect());
    let custom = match choice {
        Choice::First => custom,
        _ => {
            let ways = Ways::new(&custom.edges, custom.vertices(), choice, None, 0);
            custom.with_ways(ways, None)
        }
    };
    (fabric::given(custom, sips, &names, reader), names)
}

/// The links of `topology: nodes`. Of m nodes, the switches are m relays, then come m ways out to the spine and m ways in
/// from it, and the spine; a single node has its switch alone.
fn nodes(declared: &Topology, reader: &mut Reader<'_>) -> (Custom, Vec<String>) {
    let sips = &declared.system.sips;
    let keys = sips.nodes.clone().unwrap_or_default();
    let (count, size) = (sips.count.0, keys.size.0);
    let m = count.div_ceil(size);
    if keys.striped_gain.is_some_and(|gain| gain.0 < 1.0) {
        reader.report_paths(
            &["system.sips.nodes.striped_gain"],
            "AHBM-T005",
            "a gain below 1".to_owned(),
            "interfaces that carry less have a smaller nic_gbs",
        );
    }
    if m > 1 && !count.is_multiple_of(size) {
        let message = format!("{count} SIPs are no whole number of nodes of {size}");
        reader.report_paths(
            &["system.sips.nodes.size", "system.sips.count"],
            "AHBM-T007",
            message,
            "change one of them",
        );
    }
    if keys.taper.0 < 1.0 {
        let message = format!("a taper of {} is out of range: 1 or more", keys.taper.0);
        reader.report_paths(
            &["system.sips.nodes.taper"],
            "AHBM-T005",
            message,
            "2 halves what all interfaces get together",
        );
    }
    if keys.fabric.is_some() {
        // What is wrong was reported.
        return fabric::fabric(sips, &keys, reader).unwrap_or_else(|| (Custom::new(count, Vec::new()), Vec::new()));
    }
    let mut edges = Vec::new();
    let mut join = |from, to, wire, latency_ps| edges.push(CustomEdge { from, to, wire, latency_ps });
    for sip in 0..count {
        let node = sip / size;
        join(sip, count + node, Wire::Link, sips.link.latency_ns.0 + keys.switch_ns.0);
        join(count + node, sip, Wire::Link, sips.link.latency_ns.0);
        if m > 1 {
            join(sip, count + m + node, Wire::Way, keys.nic_latency_ns.0);
            join(count + 2 * m + node, sip, Wire::Way, keys.nic_latency_ns.0);
        }
    }
    for node in 0..if m > 1 { m } else { 0 } {
        join(count + m + node, count + 3 * m, Wire::Spine, keys.spine_ns.0);
        join(count + 3 * m, count + 2 * m + node, Wire::Spine, 0);
    }
    edges.sort_by_key(|edge| (edge.from, edge.to));
    (Custom::of_nodes(count + if m > 1 { 3 * m + 1 } else { 1 }, edges, count, size), Vec::new())
}
