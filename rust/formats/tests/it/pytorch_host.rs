//! Host execution traces: the communications of every schema, and nothing else.

use ahbm_findings::Diagnostic;
use ahbm_formats::pytorch::{Kind, Options, parse};
use ahbm_workload::{Collective, Groups, Workload};

const HEAD: &str = r#""pid":1,"time":"2024-02-01","start_ts":5"#;

/// Of schema 1.0.1: inputs and their types beside each other.
fn old(nodes: &[(u64, &str, &str)]) -> String {
    let node = |(id, values, types): &(u64, &str, &str)| {
        format!(
            r#",{{"name":"record_param_comms","id":{id},"parent":1,"inputs":[{values}],"input_types":[{types}],"outputs":[]}}"#
        )
    };
    let nodes: Vec<String> = nodes.iter().map(node).collect();
    format!(
        r#"{{"schema":"1.0.1",{HEAD},"nodes":[{{"name":"aten::mm","id":1,"inputs":[],"outputs":[]}}{}]}}"#,
        nodes.concat()
    )
}

/// Of schemas from 1.0.2 on, with the groups that a node lists.
fn new(schema: &str, nodes: &[(u64, &str, &str, &str)]) -> String {
    let node = |(id, values, types, attrs): &(u64, &str, &str, &str)| {
        format!(
            r#"{{"id":{id},"name":"record_param_comms","ctrl_deps":1,"inputs":{{"values":[{values}],"shapes":[],"types":[{types}]}},"outputs":{{"values":[],"shapes":[],"types":[]}},"attrs":[{attrs}]}}"#
        )
    };
    let nodes: Vec<String> = nodes.iter().map(node).collect();
    let groups =
        r#"[{\"pg_name\": \"0\", \"ranks\": [], \"group_size\": 2}, {\"pg_name\": \"dp\", \"ranks\": [0, 1]}]"#;
    format!(
        r###"{{"schema":"{schema}",{HEAD},"nodes":[{{"id":4,"name":"## process_group:init ##","inputs":{{"values":["{groups}"],"types":["String"]}}}},{}]}}"###,
        nodes.join(",")
    )
}

fn read(ranks: &[&str]) -> Result<Workload, Vec<Diagnostic>> {
    let names: Vec<String> = (0..ranks.len()).map(|rank| format!("host.{rank}.json")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().zip(ranks).map(|(name, text)| (&**name, text.as_bytes())).collect();
    parse("job", Kind::Host, &files, &Options::default(), Groups::default())
}

const TENSOR: &str = r#"[[131,132,0,1024,2,"cuda:0"]]"#;
const TYPES: &str =
    r#""GenericList[Tensor(c10::Half)]","Int","Int","Int","String","GenericList[]","GenericList[]","Int""#;

#[test]
fn the_oldest_schema_states_sizes_and_the_size_of_the_group() {
    let calls = format!(r#"{TENSOR},337,93825114103440,0,"allreduce",[],[],2"#);
    let wait =
        (152, r#"337,0,0,"wait",[],[],1"#, r#""Int","Int","Int","String","GenericList[]","GenericList[]","Int""#);
    let text = old(&[(150, &calls, TYPES), wait, (318, &calls, TYPES)]);
    let workload = read(&[&text, &text]).unwrap();
    let calls = workload.calls().unwrap();
    assert_eq!(calls.len(), 2);
    let spec = &calls[0].spec;
    assert_eq!((spec.collective, spec.bytes, spec.dtype.as_deref()), (Collective::AllReduce, 2048, Some("f16")));
    assert_eq!(workload.graph(0).deps(1), [0], "the calls of a group follow each other");
    assert!(workload.notes[0].message.contains("no durations"), "{:?}", workload.notes);
    assert_eq!(read(&[&text]).unwrap_err()[0].code, "AHBM-F185", "the group has two ranks");
    let four = text.replace("[],[],2", "[],[],4");
    assert_eq!(read(&[&four, &four]).unwrap_err()[0].code, "AHBM-F185");
}

#[test]
fn later_schemas_name_groups() {
    let types = TYPES.replacen(r#""Int","Int","Int""#, r#""Int","Tuple[String,String]","Int""#, 1);
    let call = format!(r#"{TENSOR},33,["dp","data"],1,"broadcast",[],[],0,1,2"#);
    for schema in ["1.0.2-chakra.0.0.4", "1.0.3-chakra.0.0.4", "1.1.0-chakra.0.0.4", "1.1.1-chakra.0.0.4"] {
        let text = new(schema, &[(437, &call, &types, r#"{"name":"dtype","type":"string","value":"Half"}"#)]);
        let workload = read(&[&text, &text]).unwrap();
        let calls = workload.calls().unwrap();
        assert_eq!(
            (calls[0].spec.collective, calls[0].spec.bytes, calls[0].spec.root),
            (Collective::Broadcast, 2048, Some(1))
        );
        assert_eq!((&*workload.groups[0].name, &*workload.groups[0].ranks), ("dp", &[0, 1][..]));
    }
}

#[test]
fn messages_state_their_other_end() {
    let types = TYPES.replacen(r#""Int","Int","Int""#, r#""Int","Tuple[String,String]","Int""#, 1);
    let end = |name: &str, other: u32| {
        new("1.1.0", &[(5, &format!(r#"{TENSOR},1,["0",""],{other},"{name}",[],[],0,1,2"#), &types, "")])
    };
    let workload = read(&[&end("send", 1), &end("recv", 0)]).unwrap();
    let message = workload.messages().unwrap()[0];
    assert_eq!((message.send.0, message.recv.0, message.bytes), (0, 1, 2048));
    assert_eq!(read(&[&end("send", 9), &end("recv", 0)]).unwrap_err()[0].code, "AHBM-F184");
}

#[test]
fn a_trace_without_communication_says_nothing() {
    assert_eq!(read(&[&old(&[])]).unwrap_err()[0].code, "AHBM-F184");
}
