//! Topology files: shipped ones resolve, bad ones are refused with code, line and hint.

use ahbm_findings::Diagnostic;
use ahbm_machine::{Coord, Machine, Node, PeId, topology_schema};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn load(text: &str, overrides: &[(&str, &str)]) -> Result<Machine, Vec<Diagnostic>> {
    let overrides: Vec<_> = overrides.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect();
    Machine::from_yaml(text, "topology.yaml", &overrides)
}

/// The only finding: code, where, message and hint.
fn refused(text: &str, overrides: &[(&str, &str)]) -> (&'static str, String, String) {
    let findings = load(text, overrides).expect_err(text);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let origins: Vec<_> = findings[0].sites.iter().map(|site| format!("{} {}", site.label, site.origin)).collect();
    (findings[0].code, origins.join("; "), findings[0].to_string())
}

#[test]
fn the_shipped_default_is_the_empty_file() {
    let text = std::fs::read_to_string(root().join("python/ahbm/data/topology.yaml")).unwrap();
    let (shipped, empty) = (load(&text, &[]).unwrap(), load("", &[]).unwrap());
    assert_eq!(shipped.canonical(), empty.canonical());
    assert_eq!(shipped.hash(), empty.hash());
    for (key, _) in empty.canonical().lines().filter_map(|line| line.split_once('=')) {
        let leaf = key.rsplit('.').next().unwrap();
        assert!(text.contains(leaf) || leaf.starts_with("bank_"), "topology.yaml does not mention {key}");
    }
}

#[test]
fn every_shipped_topology_resolves_and_draws() {
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("python/ahbm/data/topologies")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ext| ext != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let machine = load(&text, &[]).unwrap_or_else(|findings| panic!("{}: {findings:#?}", path.display()));
        machine.sfr().validate().unwrap();
        assert!(machine.dump().contains(machine.topology_name()));
        assert!(machine.to_svg().ends_with("</svg>\n"));
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if name.starts_with("npu_") {
            let link = machine.links_between_sips().next().unwrap();
            let route = machine.route(Node::Pe(PeId(0)), Node::Pe(PeId(1))).unwrap();
            let hops = if name.contains("switch") { 2 } else { 1 };
            assert_eq!(route.hops.len(), hops, "{name}");
            assert_eq!(route.head_ps, 0, "{name}");
            assert_eq!(route.hops[0].link, link.link);
            if hops == 1 {
                assert_eq!(route.latency_ps(), link.latency_ps, "{name}");
            }
        }
        seen += 1;
    }
    assert!(seen >= 8);
}

#[test]
fn the_committed_schema_is_generated() {
    let path = root().join("python/ahbm/data/schemas/topology.schema.json");
    if std::env::var_os("AHBM_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, topology_schema()).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(committed == topology_schema(), "run the tests with AHBM_WRITE_SCHEMA=1 and commit the schema");
}

#[test]
fn bad_files_are_refused_with_code_and_line() {
    let cases = [
        ("AHBM-T001", "system: [1", "topology.yaml", ""),
        ("AHBM-T001", "system: {}\nsystem: {}", "topology.yaml:2", ""),
        ("AHBM-T003", "system:\n  sips:\n    cuont: 3", "topology.yaml:3", "did you mean `count`?"),
        ("AHBM-T003", "pe: {tcm: {bandwidth: 3}}", "topology.yaml:1", "did you mean `bandwidth_gbs`?"),
        ("AHBM-T003", "ipcq: {tiers: {tcm: {setup: 1}}}", "topology.yaml:1", "did you mean `setup_ns`?"),
        ("AHBM-T003", "colour: red", "topology.yaml:1", "known: system"),
        ("AHBM-T004", "system: 5", "topology.yaml:1", "mapping"),
        ("AHBM-T004", "\npe: {dispatch_ns: fast}", "topology.yaml:2", "nanoseconds"),
        ("AHBM-T004", "ipcq: {credit: {blocks_receiver: 3}}", "topology.yaml:1", "true or false"),
        ("AHBM-T004", "system: {sips: {edges: {}}}", "topology.yaml:1", "a list"),
        ("AHBM-T005", "pe: {dispatch_ns: -1}", "topology.yaml:1", "-1"),
        ("AHBM-T005", "pe: {dispatch_ns: .nan}", "topology.yaml:1", "NaN"),
        ("AHBM-T005", "pe: {dispatch_ns: .inf}", "topology.yaml:1", "inf"),
        ("AHBM-T005", "pe: {noc_port_gbs: 0}", "topology.yaml:1", "0.001"),
        ("AHBM-T005", "pe: {noc_port_gbs: 1.0e+300}", "topology.yaml:1", "1e9"),
        ("AHBM-T005", "system: {sips: {count: 0}}", "topology.yaml:1", "1 to 1048576"),
        ("AHBM-T005", "system: {sips: {count: 99999999999999999999}}", "topology.yaml:1", "1 to 1048576"),
        ("AHBM-T005", "system: {sips: {count: 2.5}}", "topology.yaml:1", "whole number"),
        ("AHBM-T005", "pe: {math: {f16_per_ns: 0}}", "topology.yaml:1", "or .inf"),
        ("AHBM-T005", "ipcq: {tiers: {'a.b': {}}}", "topology.yaml:1", "letters"),
        ("AHBM-T006", "system: {sips: {topology: mesh_2d}}", "topology.yaml:1", "did you mean `mesh_2d_no_wrap`?"),
        ("AHBM-T006", "system: {sips: {topology: torus_2D}}", "topology.yaml:1", "did you mean `torus_2d`?"),
        ("AHBM-T006", "system: {network_model: cutthrough}", "topology.yaml:1", "did you mean `cut_through`?"),
        ("AHBM-T007", "system: {sips: {count: 6, topology: torus_2d}}", "topology.yaml:1", "perfect square"),
        ("AHBM-T007", "system: {sips: {count: 2, topology: torus_2d}}", "topology.yaml:1", "number of SIPs (--ranks)"),
        ("AHBM-T007", "system: {sips: {count: 9, topology: torus_3d}}", "topology.yaml:1", "perfect cube"),
        ("AHBM-T007", "system:\n  sips:\n    topology: torus_2d\n    count: 6\n    w: 4", "topology.yaml:5", "w = 4"),
        ("AHBM-T007", "system: {sips: {count: 6, topology: mesh_2d_no_wrap, w: 2, h: 2}}", "topology.yaml:1", "6 SIPs"),
        ("AHBM-T008", "system: {sips: {count: 6, topology: hypercube}}", "topology.yaml:1", "use 4 or 8"),
        (
            "AHBM-T009",
            "system: {sips: {count: 65536}}\ncube: {pe_layout: {pe_per_corner: 256}}",
            "topology.yaml:1",
            "limit",
        ),
        (
            "AHBM-T009",
            "system: {sips: {count: 65536}}\nsip: {cube_mesh: {w: 16, h: 16}}\ncube: {pe_layout: {corners: 1, pe_per_corner: 1}, noc: {rows: 64, cols: 64}}",
            "topology.yaml:1",
            "links",
        ),
        ("AHBM-T009", "system: {sips: {count: 5000, topology: custom}}", "topology.yaml:1", "custom"),
        ("AHBM-T010", "system: {sips: {topology: custom, edges: [{from: 0}]}}", "edges.0", "`to`"),
        (
            "AHBM-T010",
            "system:\n  sips:\n    topology: custom\n    edges:\n    - {from: 0, to: 2}",
            "topology.yaml:5",
            "SIP 2",
        ),
        ("AHBM-T010", "system: {sips: {topology: custom, edges: [{from: 1, to: 1}]}}", "edges.0", "loops"),
        (
            "AHBM-T010",
            "system: {sips: {topology: custom, edges: [{from: 0, to: 1, bidirectional: false}, {from: 1, to: 0}]}}",
            "edges.1",
            "declared twice",
        ),
        ("AHBM-T013", "cube: {memory_map: {hbm_slices_per_cube: 4}}", "topology.yaml:1", "slice"),
        ("AHBM-T015", "system: {sips: {d: 2}}", "sips.d", "remove"),
        ("AHBM-T015", "system: {sips: {edges: [{from: 0, to: 1}]}}", "edges", "custom"),
        ("AHBM-T015", "system: {sips: {links: {w: {bandwidth_gbs: 1}}}}", "sips.links.w", "meshes and tori"),
        ("AHBM-T015", "system: {sips: {count: 4, topology: torus_2d, links: {d: {latency_ns: 1}}}}", "links.d", "d"),
        ("AHBM-T015", "system: {sips: {switch: {reduces: true}}}", "switch.reduces", "topology to switch"),
    ];
    for (code, text, place, hint) in cases {
        let (found, places, message) = refused(text, &[]);
        assert_eq!(found, code, "{text}: {message}");
        assert!(places.contains(place), "{text}: {places}");
        assert!(message.contains(hint), "{text}: {message}");
    }
}

#[test]
fn all_findings_come_at_once() {
    let findings = load("pe: {dispatch_ns: -1, nose: 2}\nsystem: {network_model: none}", &[]).unwrap_err();
    let codes: Vec<_> = findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["AHBM-T005", "AHBM-T003", "AHBM-T006"]);
}

#[test]
fn greedy_files_are_refused() {
    let deep = "[".repeat(5_000);
    let long = format!("# {}", "x".repeat(1 << 20));
    let laughs: String = (0..12).fold("a0: &a0 [x]\n".to_owned(), |text, i| {
        let refs = vec![format!("*a{i}"); 12].join(", ");
        format!("{text}a{}: &a{} [{refs}]\n", i + 1, i + 1)
    });
    for text in [&deep, &long, &laughs] {
        let findings = load(text, &[]).unwrap_err();
        assert_eq!(findings[0].code, "AHBM-T002", "{findings:#?}");
    }
}

#[test]
fn overrides_reach_every_key() {
    let defaults = load("", &[]).unwrap();
    for line in defaults.canonical().lines() {
        let (path, shown) = line.split_once('=').unwrap();
        let value = shown.trim_end_matches("GB/s").replace("inf", ".inf");
        let value = match value.strip_suffix("ps") {
            Some(ps) => (ps.parse::<f64>().unwrap() / 1000.0).to_string(),
            None => value,
        };
        let machine = load("", &[(path, &value)]).unwrap_or_else(|findings| panic!("{path}={value}: {findings:#?}"));
        assert_eq!(machine.hash(), defaults.hash(), "{path}={value}");
    }
    let tiers = [("ipcq.tiers.fast.bandwidth_gbs", "1024"), ("ipcq.tiers.tcm", "{setup_ns: 3}")];
    let machine = load("", &tiers).unwrap();
    assert_eq!(machine.costs().tiers["fast"].access_ps(1024), 1000);
    assert_eq!(machine.costs().tiers["tcm"].access_ps(512), 4000);
    assert_ne!(machine.hash(), defaults.hash());
    let text = "system: {sips: {topology: custom, edges: [{from: 0, to: 1}]}}";
    let machine = load(text, &[("system.sips.edges.0.latency_ns", "5")]).unwrap();
    assert_eq!(machine.links_between_sips().next().unwrap().latency_ps, 5000);
}

#[test]
fn bad_overrides_are_refused() {
    let cases = [
        ("ipcq.tears.tcm.setup_ns", "1", "AHBM-T003", "did you mean `tiers`?"),
        ("pe.dispatch", "1", "AHBM-T003", "did you mean `dispatch_ns`?"),
        ("pe.dispatch_ns", "soon", "AHBM-T004", "override pe.dispatch_ns=soon"),
        ("pe.dispatch_ns", "{", "AHBM-T001", "override pe.dispatch_ns={"),
        ("", "1", "AHBM-T011", "dotted path"),
        ("pe..dma", "1", "AHBM-T011", "dotted path"),
        ("system.sips.edges.7.to", "1", "AHBM-T011", "list of 1"),
        ("system.sips.count.more", "1", "AHBM-T011", "below a number"),
    ];
    for (path, value, code, part) in cases {
        let text = "system: {sips: {count: 2, topology: custom, edges: [{from: 0, to: 1}]}}";
        let (found, _, message) = refused(text, &[(path, value)]);
        assert_eq!(found, code, "{message}");
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn the_hash_is_stable() {
    let hash = load("", &[]).unwrap().hash();
    assert_eq!(hash, load("# a comment\nsystem: {flit_bytes: 256}", &[]).unwrap().hash());
    for (path, value) in [("system.flit_bytes", "128"), ("ipcq.tiers.x", "{}"), ("system.sips.count", "3")] {
        assert_ne!(hash, load("", &[(path, value)]).unwrap().hash());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Arbitrary text and mutations of the shipped file neither panic nor hang.
    #[test]
    fn strange_text_is_refused_quietly(text in "[ -~\n]{0,200}", at in 0usize..3000, cut in 0usize..40) {
        let _ = load(&text, &[]);
        let shipped = include_str!("../../../../python/ahbm/data/topology.yaml");
        let (start, end) = (at.min(shipped.len()), (at + cut).min(shipped.len()));
        let mutated = format!("{}{text}{}", &shipped[..start], &shipped[end..]);
        let _ = load(&mutated, &[(text.as_str(), text.as_str())]);
    }

    /// Ids and coordinates are two spellings of the same PE.
    #[test]
    fn pe_ids_round_trip(sips in 1u32..20, w in 1u32..5, h in 1u32..5, corner in 1u32..5, per in 1u32..4) {
        let text = format!("system: {{sips: {{count: {sips}}}}}\nsip: {{cube_mesh: {{w: {w}, h: {h}}}}}\ncube: {{pe_layout: {{corners: {corner}, pe_per_corner: {per}}}}}");
        let machine = load(&text, &[]).unwrap();
        prop_assert_eq!(machine.pes(), sips * w * h * corner * per);
        for id in 0..machine.pes() {
            prop_assert_eq!(machine.pe(machine.coord(PeId(id))), Some(PeId(id)));
        }
        prop_assert_eq!(machine.pe(Coord { sip: sips, cube: 0, pe: 0 }), None);
    }
}
