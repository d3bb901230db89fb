//! From a text to a machine.

use crate::cube_links::CubeLink;
use crate::custom::{Custom, CustomEdge, Wire};
use crate::declared::{Computing, Names, Reader, Topology, Value};
use crate::faults::{FULL_PACE, Faults, LinkFault};
use crate::machine::Computes;
use crate::validated::{Validated, validate};
use crate::{Coord, Heading, LinkId, Machine, overrides};
use ahbm_findings::Diagnostic;
use ahbm_wire::yaml;
use std::sync::Arc;

const MAX_OVERRIDES: usize = 1_000;

impl Machine {
    /// Parses, validates and resolves a topology. `origin` names the text in errors; `overrides` are
    /// dotted paths with YAML scalars (`("ipcq.tiers.tcm.bandwidth_gbs", "512")`), applied before validation.
    /// Empty text is the default machine.
    ///
    /// # Errors
    /// All findings at once, each with `origin:line` or the override it stems from: `AHBM-T001` no YAML,
    /// `T002` too large, `T003` unknown key, `T004` wrong kind of value, `T005` out of range, `T006` unknown
    /// name, `T007` grid size, `T008` not a power of two, `T009` over budget, `T010` custom edges, `T011`
    /// override path, `T013` too few HBM slices, `T015` key without effect on this network, `T017` a fault of what
    /// does not exist.
    pub fn from_yaml(text: &str, origin: &str, overrides: &[(String, String)]) -> Result<Self, Vec<Diagnostic>> {
        if overrides.len() > MAX_OVERRIDES {
            let message = format!("{} overrides are more than the limit of {MAX_OVERRIDES}", overrides.len());
            return Err(vec![Diagnostic::new("AHBM-T002", message)]);
        }
        let mut tree = yaml::parse(text, origin).map_err(|finding| vec![finding])?;
        let mut reader = Reader::new(origin, overrides);
        for (index, (path, value)) in overrides.iter().enumerate() {
            if let Err(finding) = overrides::apply(&mut tree, index, path, value) {
                reader.push(finding);
            }
        }
        let declared = Topology::read(&tree, &mut reader).unwrap_or_default();
        let validated = if reader.clean() { validate(&declared, &mut reader) } else { None };
        let machine = validated.filter(|_| reader.clean()).map(|validated| {
            let mut machine = Self::resolve(&declared, validated);
            machine.faults = faults(&machine, &declared, &mut reader);
            machine
        });
        match reader.finish(machine)? {
            Some(machine) => Ok(machine),
            None => Err(vec![Diagnostic::new("AHBM-T001", "the topology could not be read").site("topology", origin)]),
        }
    }

    fn resolve(declared: &Topology, validated: Validated) -> Self {
        let Validated { sfr, sips, cube, hbm_bytes } = validated;
        let costs = declared.costs();
        let mut canonical = String::new();
        declared.canonical("", &mut canonical);
        let sfr_pes = f64::from(sfr.cubes()) * f64::from(sfr.pes);
        let mib = |real: f64| (real * f64::from(1 << 20)) as u64;
        let mut machine = Self {
            math_bytes_per_ns: costs.math_bytes_per_ns,
            costs,
            sip_base: sfr.sips * sfr.cubes() * cube.links(),
            transit_ps: declared.sip.io.transit_ns.0,
            topology: declared.system.sips.topology.name(),
            io_cpu_ps: declared.sip.io.cpu_ns.0,
            tcm_rate: declared.pe.tcm.bandwidth_gbs.rate,
            tcm_bytes: mib(declared.pe.tcm.mb.0),
            sram_bytes: mib(declared.cube.sram.mb.0),
            hbm_bytes,
            sfr,
            sips,
            cube,
            canonical: canonical.into(),
            roofline: declared.roofline(sfr_pes),
            assumed: declared.assumed.iter().map(|told| told.0.clone()).collect(),
            sheet: [&declared.pe.roofline.accelerator, &declared.pe.roofline.source]
                .map(|told| told.as_ref().map(|told| told.0.clone())),
            computes: {
                let said = &declared.pe.roofline;
                said.unknown != Some(true) || said.peak_tflops.is_some() && said.memory_gbs.is_some()
            },
            compute: declared.compute.as_ref().map(|Computing(keys)| {
                let source = keys.source.as_ref().map(|told| told.0.clone());
                let fit = keys.fit.as_ref().map_or(serde_json::Value::Null, |fit| fit.0.clone());
                Arc::new(Computes { law: keys.compute(), source, fit })
            }),
            faults: Faults::default(),
            step_ps: 0,
            nic_step_ps: None,
            protocols: declared.protocols.0.iter().map(|(name, keys)| (name.clone(), keys.protocol())).collect(),
            protocol: declared.protocol.as_ref().map(|name| name.0.clone()),
            library: declared.library.library().into(),
            bands: declared.calibration.as_ref().map(|checked| checked.0.bands().into()),
            ranges: declared.calibration.as_ref().map_or_else(Vec::new, |checked| checked.0.ranges()).into(),
            call: Arc::default(),
        };
        machine.set_costs(Arc::default());
        machine
    }
}

/// The links and PEs that are declared to be at fault.
fn faults(machine: &Machine, declared: &Topology, reader: &mut Reader<'_>) -> Faults {
    let mut faults = Faults::default();
    for (index, fault) in declared.faults.links.iter().enumerate() {
        let path = format!("faults.links.{index}");
        let mut missing = |message: String| {
            let hint = "give `from` and `to`: two SIPs that a link joins, or with `sip` two neighbouring cubes of it";
            reader.report_paths(&[&path], "AHBM-T017", message, hint);
        };
        let (Some(from), Some(to)) = (fault.from, fault.to) else {
            missing("a faulty link needs both ends".to_owned());
            continue;
        };
        let ways = if fault.bidirectional { vec![(from.0, to.0), (to.0, from.0)] } else { vec![(from.0, to.0)] };
        for (from, to) in ways {
            let links = match fault.sip {
                Some(sip) => port_links(machine, sip.0, from, to),
                None => {
                    machine.sips.direct(from, to).map(|index| LinkId(machine.sip_base + index)).into_iter().collect()
                }
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

/// All connections of the port of a cube towards a neighbour; none when they are no neighbours.
fn port_links(machine: &Machine, sip: u32, from: u32, to: u32) -> Vec<LinkId> {
    let neighbours = || Heading::MESH.into_iter().filter_map(|port| Some((port, machine.cube_at(from, port)?)));
    let on_machine = sip < machine.sfr.sips && from < machine.sfr.cubes();
    let port = neighbours().filter(|_| on_machine).find(|&(_, cube)| cube == to);
    let base = (sip * machine.sfr.cubes() + from) * machine.cube.links();
    let link = |port, connection| LinkId(base + machine.cube.index(CubeLink::Ucie(port, connection)));
    port.into_iter()
        .flat_map(|(port, _)| (0..machine.cube.connections).map(move |connection| link(port, connection)))
        .collect()
}
