//! Traces as JSON: every form is the trace that the binary form is.

use crate::support::ring::ring_xml;
use ahbm_check::{Outcome, PlanCheck, check_plan};
use ahbm_formats::chakra::{Graph, PlanOptions, ReadOptions, Trace, parse_workload};
use ahbm_formats::{Document, Reading, Source, msccl_xml};
use ahbm_plan::{Budget, Limit};
use ahbm_wire::chakra::{Arm, Node, NodeKind, Value};
use ahbm_workload::{Groups, Work};
use std::fmt::Write;
use std::path::{Path, PathBuf};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ahbm-json-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn read(&self, files: &[(&str, &str)], budget: Budget) -> Result<Document, Vec<&'static str>> {
        for (name, text) in files {
            std::fs::write(self.0.join(name), text).unwrap();
        }
        let reading = Reading { budget, ..Reading::default() };
        Document::read(&self.0.join(files[0].0), &reading).map_err(|f| f.into_iter().map(|f| f.code).collect())
    }

    fn nodes(&self, text: &str) -> Vec<Node> {
        match self.read(&[("t.json", text)], Budget::default()).unwrap().source {
            Source::Chakra(trace) => trace.graphs[0].nodes.clone(),
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Protobuf's mapping: camel case, 64-bit numbers as strings, defaults left out, objects without separators.
fn jsonized(graph: &Graph) -> String {
    let value = |value: &Value| match value {
        Value::Integer(Arm::Int64, n) => format!("\"int64Val\": \"{n}\""),
        Value::Integer(Arm::Uint64, n) => format!("\"uint64Val\": \"{n}\""),
        Value::Integer(Arm::Bool, n) => format!("\"boolVal\": {}", *n != 0),
        Value::Integer(Arm::Int32, n) => format!("\"int32Val\": {n}"),
        Value::Text(text) => format!("\"stringVal\": {text:?}"),
        Value::Raw(10, _) => "\"int64List\": {\"values\": LIST}".into(),
        other => panic!("{other:?}"),
    };
    let metadata = graph.metadata.attributes.iter().map(|a| {
        let list = graph.metadata.integers(&a.name).unwrap_or_default();
        let list: Vec<String> = list.iter().map(|n| format!("\"{n}\"")).collect();
        format!("{{\"name\": {:?}, {}}}", a.name, value(&a.value).replace("LIST", &format!("[{}]", list.join(", "))))
    });
    let mut out = format!("{{\n \"version\": \"0.0.4\", \"attr\": [{}]}}", metadata.collect::<Vec<_>>().join(", "));
    for node in &graph.nodes {
        let deps = |deps: &[u64]| deps.iter().map(|d| format!("\"{d}\"")).collect::<Vec<_>>().join(", ");
        let attributes = node.attributes.iter().map(|a| format!("{{\"name\": {:?}, {}}}", a.name, value(&a.value)));
        let id = if node.id > 0 { format!("\"id\": \"{}\", ", node.id) } else { String::new() };
        write!(
            out,
            "{{{id}\"name\": {:?}, \"type\": {:?}, \"ctrlDeps\": [{}], \"dataDeps\": [{}], \"attr\": [{}]}}",
            node.name,
            node.kind.name(),
            deps(&node.ctrl_deps),
            deps(&node.data_deps),
            attributes.collect::<Vec<_>>().join(", ")
        )
        .unwrap();
    }
    out
}

#[test]
fn protobufs_mapping_of_a_plan_is_the_plan() {
    let plan = msccl_xml::read(ring_xml(3).as_bytes(), "ring.xml", &Budget::default()).unwrap();
    let trace = Trace::from_plan("ring", &plan, &PlanOptions::default()).unwrap();
    let texts: Vec<String> = trace.graphs.iter().map(jsonized).collect();
    let names = ["ring.0.json", "ring.1.json", "ring.2.json"];
    let files: Vec<_> = names.iter().copied().zip(texts.iter().map(String::as_str)).collect();
    let folder = Folder::new("mapped");
    let document = folder.read(&files, Budget::default()).unwrap();
    assert_eq!((document.format(), document.algorithm.ranks()), ("chakra", 3));
    assert_eq!(check_plan(&document.algorithm, &PlanCheck::default()).outcome, Outcome::Correct);
    let Source::Chakra(again) = document.source else { unreachable!() };
    assert_eq!(again.to_bytes(), trace.to_bytes());
}

#[test]
fn attributes_beside_the_fields() {
    let folder = Folder::new("flat");
    let generated = folder.nodes(
        r#"{"nodes": [
            {"id": 4, "name": "c", "node_type": "coll_comm_node", "data_deps": [7], "ctrl_deps": [], "comm_size": 64,
             "comm_type": "ALL_GATHER", "comm_group": null, "involved_dim": [true, false]},
            {"id": 7, "name": "x", "node_type": "comp_node", "num_ops": 1.5, "op_type": "GEMM", "data_deps": []}]}"#,
    );
    assert_eq!(generated[0].kind, NodeKind::Collective);
    assert_eq!((generated[0].integer("comm_size"), generated[0].integer("comm_type")), (Some(64), Some(2)));
    assert_eq!(generated[0].data_deps, [7]);
    assert_eq!(generated[0].text("involved_dim"), Some("[true,false]"));
    assert_eq!((generated[1].kind, generated[1].text("op_type")), (NodeKind::Comp, Some("GEMM")));
    let fed = folder.nodes(
        r#"{"workload_graph": [{"Id": 3, "Name": "s", "NodeType": 5, "ctrlDeps": [], "data_deps": [2], "runtime": 12,
            "is_cpu_op": false, "comm_dst": 1, "comm_tag": 9},
            {"Id": 2, "Name": "l", "NodeType": 2, "data_deps": []}], "workload_name": "w", "ngpus": 1}"#,
    );
    assert_eq!((fed[0].id, fed[0].kind, fed[0].duration_micros), (3, NodeKind::Send, 12));
    assert_eq!((fed[0].integer("comm_tag"), &fed[0].data_deps[..]), (Some(9), &[2][..]));
    assert_eq!(fed[1].kind, NodeKind::MemLoad);
}

#[test]
fn what_is_no_trace_says_so() {
    let folder = Folder::new("refused");
    let codes = |text: &str| folder.read(&[("t.json", text)], Budget::default()).map(|d| d.format()).unwrap_err();
    for text in [
        r#"{"nodes": [{"id": -1}]}"#,
        r#"{"nodes": [{"id": "x"}]}"#,
        r#"{"nodes": [7]}"#,
        r#"{"nodes": [{"id": 1, "data_deps": 3}]}"#,
        r#"{"version": "1", "attr": [{"int64Val": "3"}]}"#,
        r#"{"version": "1", "attr": [{"name": "a", "int65Val": "3"}]}"#,
        r#"{"version": "1"}{"id": "1", "kind": "x"}"#,
        r#"{"version": "1"}{"id": "1""#,
        r#"{"nodes": [{"id": 1, "node_type": "no_node"}]}"#,
        r#"{"nodes": [{"id": 1, "": 2}]}"#,
        r#"{"nodes": [], "": null}"#,
    ] {
        assert_eq!(codes(text), ["AHBM-F131"], "{text}");
    }
    assert_eq!(codes(r#"{"nodes": [{"id": 1}, {"id": 1}]}"#), ["AHBM-F133"]);
    assert_eq!(codes(r#"{"nodes": [{"id": 1, "data_deps": [2]}]}"#), ["AHBM-F134"]);
    // An execution plan is read as one, whatever is wrong with it.
    assert_eq!(codes(r#"{"name": "p", "collective": "allreduce", "nodes": []}"#), ["AHBM-F141"]);
    let tight = Budget::default().with(Limit::Nesting, 2);
    assert_eq!(folder.read(&[("t.json", r#"{"nodes": [{"id": 1}]}"#)], tight).unwrap_err(), ["AHBM-B208"]);
    assert_eq!(
        folder.read(&[("p.1.json", r#"{"nodes": []}"#)], Budget::default()).unwrap_err(),
        ["AHBM-F139"],
        "rank 0 is missing"
    );
}

#[test]
fn a_prefix_and_a_folder_mean_a_trace_in_json_too() {
    let folder = Folder::new("prefix");
    let nodes = |id: u32| format!(r#"{{"nodes": [{{"id": {id}}}]}}"#);
    folder.read(&[("t.0.json", &nodes(3)), ("t.1.json", &nodes(4))], Budget::default()).unwrap();
    let ids = |path: &Path| match Document::read(path, &Reading::default()).map_err(|f| f[0].code)?.source {
        Source::Chakra(trace) => Ok(trace.graphs.iter().map(|graph| graph.nodes[0].id).collect::<Vec<_>>()),
        other => panic!("{other:?}"),
    };
    for path in [folder.0.join("t"), folder.0.join("t.1.json"), folder.0.clone()] {
        assert_eq!(ids(&path), Ok(vec![3, 4]), "{}", path.display());
        assert_eq!(Document::files(&path, &Budget::default()).unwrap().len(), 2);
    }
    // What is no trace does not count, whatever its name.
    std::fs::write(folder.0.join("a.0.json"), r#"{"results": []}"#).unwrap();
    assert_eq!(ids(&folder.0), Ok(vec![3, 4]));
    assert_eq!(ids(&folder.0.join("a")), Err("AHBM-U291"));
    std::fs::write(folder.0.join("u.0.json"), nodes(5)).unwrap();
    assert_eq!(ids(&folder.0), Err("AHBM-F139"), "two traces");
    assert_eq!(ids(&folder.0.join("u")), Ok(vec![5]));
    // Binary files go first.
    std::fs::write(folder.0.join("u.0.et"), "").unwrap();
    assert_eq!(Document::files(&folder.0.join("u"), &Budget::default()).unwrap(), [folder.0.join("u.0.et")]);
}

#[test]
fn an_attribute_of_another_type_is_named_with_what_it_is() {
    let read = |kind: &str, attributes: &str| {
        let text = format!(r#"{{"version": "0.0.4"}}{{"id": "1", "type": {kind:?}, "attr": [{attributes}]}}"#);
        let options = ReadOptions::default();
        let read = parse_workload("t", &[("t.json", text.as_bytes())], &options, Groups::default());
        let found = read.unwrap_err().remove(0);
        (found.code, found.message)
    };
    let tells = |kind: &str, attributes: &str, wanted: &str| {
        let (code, message) = read(kind, attributes);
        assert_eq!(code, "AHBM-F136");
        assert!(message.starts_with(wanted), "{message}");
    };
    let call = r#"{"name": "comm_type", "int64Val": 0}"#;
    tells("COMM_COLL_NODE", call, "attribute comm_size is missing");
    for (value, told) in [
        (r#""doubleVal": 8"#, "8.0 in double_val"),
        (r#""floatVal": 0.5"#, "0.5 in float_val"),
        (r#""stringVal": "1K""#, "\"1K\" in string_val"),
        (r#""int64List": {"values": [8]}"#, "a list or bytes"),
    ] {
        let size = format!(r#"{call}, {{"name": "comm_size", {value}}}"#);
        tells("COMM_COLL_NODE", &size, &format!("attribute comm_size is {told}, no whole number"));
        // Also where it may be left out.
        for name in ["stream", "is_cpu_op", "comm_priority"] {
            tells(
                "COMP_NODE",
                &format!(r#"{{"name": "{name}", {value}}}"#),
                &format!("attribute {name} is {told}, no"),
            );
        }
        let work = format!(r#"{{"name": "num_ops", {value}}}"#);
        tells("COMP_NODE", &work, &format!("attribute num_ops is {told}, no whole number"));
    }
}

#[test]
fn a_kernel_of_an_unknown_class_or_of_dimensions_that_it_cannot_have_is_refused() {
    let read = |attribute: &str| {
        let text =
            format!(r#"{{"version": "0.0.4"}}{{"id": "1", "type": "COMP_NODE", "attr": [{{"name": {attribute}}}]}}"#);
        let files: [(&str, &[u8]); 1] = [("t.0.json", text.as_bytes())];
        parse_workload("t", &files, &ReadOptions::default(), Groups::default())
    };
    let list = |values: &str| format!(r#""kernel_dims", "int64List": {{"values": [{values}]}}"#);
    let eleven = ["7"; 11].join(", ");
    for (attribute, told) in [
        (r#""kernel_kind", "stringVal": "gemm""#.to_owned(), "kernel_kind is \"gemm\""),
        (r#""kernel_kind", "int64Val": 3"#.to_owned(), "kernel_kind is 3 in an integral field, no text in string_val"),
        (
            r#""kernel_dims", "stringVal": "4""#.to_owned(),
            "kernel_dims is \"4\" in string_val, no list of whole numbers",
        ),
        (list(&eleven), "kernel_dims has 11 numbers, more than 10"),
        (list("1, -1"), "kernel_dims has -1, which is not 0 to 4294967295"),
        (list("4294967296"), "kernel_dims has 4294967296, which is not 0 to 4294967295"),
    ] {
        let found = read(&attribute).unwrap_err().remove(0);
        assert_eq!((found.code, found.message), ("AHBM-F136", format!("attribute {told}")));
        assert_eq!(found.hint.is_some_and(|hint| hint.contains("product")), attribute.contains("gemm"));
    }
    assert!(read(&list(&["4294967295"; 10].join(", "))).is_ok());
}

#[test]
fn an_attribute_of_a_collective_or_message_that_has_another_type_is_named() {
    let read = |kind: &str, attribute: &str| {
        let own = r#"{"name": "comm_type", "int64Val": 0}, {"name": "comm_size", "int64Val": 8}"#;
        let text = format!(
            r#"{{"version": "0.0.4"}}{{"id": "1", "type": {kind:?}, "attr": [{own}, {{"name": {attribute}}}]}}"#
        );
        let files: [(&str, &[u8]); 2] = [("t.0.json", text.as_bytes()), ("t.1.json", text.as_bytes())];
        let found = parse_workload("t", &files, &ReadOptions::default(), Groups::default()).unwrap_err().remove(0);
        (found.code, found.message)
    };
    for (attribute, told) in [
        (r#""pg_name", "doubleVal": 0.5"#, "pg_name is 0.5 in double_val, no text in string_val"),
        (r#""ranks", "stringVal": "[0]""#, "ranks is \"[0]\" in string_val, no list of whole numbers"),
        (r#""dtype", "int64Val": 3"#, "dtype is 3 in an integral field, no text in string_val"),
        (r#""op", "boolVal": true"#, "op is 1 in an integral field, no text in string_val"),
        (r#""involved_dim", "boolVal": true"#, "involved_dim is 1 in an integral field, no list of whole numbers"),
        (r#""in_splits", "stringVal": "4""#, "in_splits is \"4\" in string_val, no list of whole numbers"),
        (r#""duration_ns", "stringVal": "4""#, "duration_ns is \"4\" in string_val, no number"),
    ] {
        assert_eq!(read("COMM_COLL_NODE", attribute), ("AHBM-F136", format!("attribute {told}")));
    }
    let (code, message) = read("COMM_SEND_NODE", r#""pg_name", "doubleList": {"values": [1]}"#);
    assert_eq!(code, "AHBM-F136", "{message}");
}

#[test]
fn cut_anywhere_it_is_an_answer() {
    let text = r#"{"version":"1","attr":[{"name":"a","boolList":{"values":[true]}}]}{"id":"1","name":"n\"","type":"COMP_NODE",
        "inputs":{"values":"[]","shapes":"[]","types":"[]"},"attr":[{"name":"f","doubleVal":"NaN"}]}"#;
    let folder = Folder::new("cut");
    for end in 0..text.len() {
        let _ = folder
            .read(&[("t.json", &text[..end])], Budget::default())
            .map(|d| check_plan(&d.algorithm, &PlanCheck::default()));
    }
    assert_eq!(folder.nodes(text).len(), 1);
}

#[test]
fn a_version_of_the_schema_that_is_not_known_is_told() {
    let folder = Folder::new("version");
    for (version, known) in [
        ("0.0.4", true),
        ("1.0.0", true),
        ("1.1.1-chakra.0.0.4", true),
        ("symbolic_tensor_network", true),
        ("", true),
        ("0.0.1", false),
        ("2.0.0", false),
        ("1.1.1-chakra.3.0.0", false),
    ] {
        let text = format!(
            "{{\"version\": {version:?}}}\n{{\"id\": 1, \"name\": \"a\", \"type\": \"COMP_NODE\", \"duration_micros\": 1}}"
        );
        let read = folder.read(&[("v.json", &text)], Budget::default()).unwrap();
        let told: Vec<_> = read.warnings().iter().filter(|warning| warning.code == "AHBM-F182").collect();
        assert_eq!(told.len(), usize::from(!known), "{version}: {told:?}");
        assert!(told.iter().all(|warning| warning.message.contains(version)));
    }
}

/// Nodes of a rank: id, kind, microseconds, what it waits for, attributes.
fn rank_of(nodes: &[(u64, &str, u64, &str, &str)]) -> String {
    let node = |(id, kind, us, deps, attributes): &(u64, &str, u64, &str, &str)| {
        format!(
            r#"{{"id": "{id}", "name": "n{id}", "type": "{kind}", "durationMicros": "{us}", "ctrlDeps": [{deps}], "attr": [{attributes}]}}"#
        )
    };
    format!(r#"{{"version": "0.0.4"}}{}"#, nodes.iter().map(node).collect::<String>())
}

#[test]
fn the_hosts_half_of_a_communication_is_an_operation_of_the_host() {
    const HOST: &str = r#"{"name": "is_cpu_op", "boolVal": true}"#;
    const CALL: &str = r#"{"name": "is_cpu_op", "boolVal": false}, {"name": "comm_type", "int64Val": 0}, {"name": "comm_size", "int64Val": 8}"#;
    let read = |nodes: &[(u64, &str, u64, &str, &str)]| {
        let text = rank_of(nodes);
        let files: [(&str, &[u8]); 2] = [("t.0.json", text.as_bytes()), ("t.1.json", text.as_bytes())];
        parse_workload("t", &files, &ReadOptions::default(), Groups::default())
    };
    let halves = [
        (1, "COMM_COLL_NODE", 30, "", HOST),
        (2, "COMM_COLL_NODE", 90, "1", CALL),
        (3, "COMM_SEND_NODE", 0, "1", HOST),
        (4, "COMP_NODE", 5, "2, 3", HOST),
    ];
    let workload = read(&halves).unwrap();
    assert_eq!(workload.calls().unwrap().len(), 1);
    let (graph, work) = (workload.graph(0), |at: usize| &workload.graph(0).nodes()[at].work);
    assert!(matches!(work(0), Work::Compute(_)) && matches!(work(2), Work::Nothing));
    assert_eq!((graph.nodes()[0].ps, graph.nodes()[0].cpu), (30_000_000, true));
    assert_eq!([graph.deps(1), graph.deps(3)], [&[0][..], &[1, 2]]);
    // Nothing says what is communicated.
    let found = read(&[halves[0]]).unwrap_err().remove(0);
    assert_eq!((found.code, &*found.message), ("AHBM-F136", "attribute comm_type is missing"));
    // Of the device it is missing, too.
    let device = read(&[(1, "COMM_COLL_NODE", 30, "", ""), halves[1]]).unwrap_err().remove(0);
    assert_eq!((device.code, &*device.message), ("AHBM-F136", "attribute comm_type is missing"));
}
